#include "common/runtime/worker_reporter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace::runtime {

WorkerReporter::WorkerReporter(WorkerReporterWiring wiring, WorkerReporterOptions options,
                               std::function<cluster::Load()> load)
    : wiring_(wiring),
      options_(std::move(options)),
      load_(std::move(load)),
      connected_gauge_(wiring_.metrics.AddGauge("millrace_worker_balancers", "Balancers that hear this worker")),
      lost_(wiring_.metrics.AddCounter("millrace_worker_balancer_losses_total",
                                       "Streams to a balancer that failed or went silent")) {}

WorkerReporter::~WorkerReporter() {
  wiring_.control.Cancel(tick_);
  wiring_.control.Cancel(report_);
}

void WorkerReporter::Start() {
  wiring_.control.Post([this] { Tick(); });
}

uint32_t WorkerReporter::connected() const {
  return static_cast<uint32_t>(
      std::count_if(balancers_.begin(), balancers_.end(), [](const auto& entry) { return entry.second.answered; }));
}

void WorkerReporter::Connect(const std::string& address, Balancer& balancer) {
  balancer.monitor.emplace(options_.liveness, wiring_.control.Now());
  balancer.answered = false;
  balancer.stream = wiring_.dialer.Open(address, {[this, address](peer::ReportProtocol::Down message) {
                                                    Balancer& heard = balancers_.at(address);
                                                    heard.monitor->Heard(std::get<peer::Heartbeat>(message));
                                                    heard.answered = true;
                                                    heard.backoff = Duration(0);
                                                  },
                                                  [this, address](const Status&) { Lost(address); }});
  balancer.stream->Send(peer::WorkerHello{options_.info});
  cluster::Load load = load_();
  load.ready = true;
  load.sequence = ++sequence_;
  Send(balancer, load);
}

void WorkerReporter::Lost(const std::string& address) {
  Balancer& balancer = balancers_.at(address);
  lost_.Add();
  balancer.stream = nullptr;
  balancer.answered = false;
  balancer.backoff = std::clamp(2 * balancer.backoff, options_.reconnect_least, options_.reconnect_most);
  balancer.retry_at = wiring_.control.Now() + balancer.backoff;
}

void WorkerReporter::Changed() {
  if (report_ != TimerId::kNone) return;
  const TimePoint due = std::max(wiring_.control.Now(), last_report_ + options_.min_interval);
  report_ = wiring_.control.PostAt(due, [this] {
    report_ = TimerId::kNone;
    Report();
  });
}

void WorkerReporter::Report() {
  last_report_ = wiring_.control.Now();
  cluster::Load load = load_();
  load.ready = true;
  load.sequence = ++sequence_;
  for (auto& [address, balancer] : balancers_) Send(balancer, load);
}

void WorkerReporter::Send(Balancer& balancer, const cluster::Load& load) {
  if (balancer.stream && balancer.stream->pending_sends() < options_.most_pending) {
    balancer.stream->Send(peer::LoadReport{load});
  }
}

void WorkerReporter::Tick() {
  const TimePoint now = wiring_.control.Now();
  const std::vector<std::string> known = wiring_.balancers.Addresses();
  std::erase_if(balancers_,
                [&](const auto& entry) { return !std::binary_search(known.begin(), known.end(), entry.first); });
  for (const std::string& address : known) {
    Balancer& balancer = balancers_[address];
    if (balancer.stream && !balancer.monitor->Tick(now).ok()) Lost(address);
    if (!balancer.stream && now >= balancer.retry_at) Connect(address, balancer);
  }
  connected_gauge_.Set(connected());
  if (now - last_report_ >= options_.liveness.heartbeat / 2) Report();
  tick_ = wiring_.control.PostAt(NextBeat(wiring_.control.Now(), options_.liveness.heartbeat / 2), [this] { Tick(); });
}

}  // namespace millrace::runtime
