#include "common/telemetry/prometheus_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>

namespace millrace::telemetry {
namespace {

class PrometheusCounter final : public Counter {
 public:
  explicit PrometheusCounter(prometheus::Counter& counter) : counter_(counter) {}
  void Add(double by) override { counter_.Increment(by); }
  double Value() const override { return counter_.Value(); }

 private:
  prometheus::Counter& counter_;
};

class PrometheusGauge final : public Gauge {
 public:
  explicit PrometheusGauge(prometheus::Gauge& gauge) : gauge_(gauge) {}
  void Set(double value) override { gauge_.Set(value); }
  double Value() const override { return gauge_.Value(); }

 private:
  prometheus::Gauge& gauge_;
};

class PrometheusHistogram final : public Histogram {
 public:
  explicit PrometheusHistogram(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void Observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

std::map<std::string, std::string> LabelMap(const MetricLabels& labels) { return {labels.begin(), labels.end()}; }

}  // namespace

struct PrometheusMetrics::State {
  using Key = std::pair<std::string, MetricLabels>;
  // Returns the wrapper under `key`, making it on first use.
  template <class Wrapper, class Make>
  Wrapper& Get(std::map<Key, std::unique_ptr<Wrapper>>& wrappers, Key key, Make make) {
    std::lock_guard lock(mutex);
    auto& wrapper = wrappers[std::move(key)];
    if (wrapper == nullptr) wrapper = std::make_unique<Wrapper>(make());
    return *wrapper;
  }

  prometheus::Registry registry;
  std::mutex mutex;
  std::map<Key, std::unique_ptr<PrometheusCounter>> counters;      // guarded by mutex
  std::map<Key, std::unique_ptr<PrometheusGauge>> gauges;          // guarded by mutex
  std::map<Key, std::unique_ptr<PrometheusHistogram>> histograms;  // guarded by mutex
};

PrometheusMetrics::PrometheusMetrics() : state_(std::make_unique<State>()) {}
PrometheusMetrics::~PrometheusMetrics() = default;

Counter& PrometheusMetrics::AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels) {
  return state_->Get(state_->counters, {name, labels}, [&]() -> prometheus::Counter& {
    return prometheus::BuildCounter().Name(name).Help(help).Register(state_->registry).Add(LabelMap(labels));
  });
}

Gauge& PrometheusMetrics::AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels) {
  return state_->Get(state_->gauges, {name, labels}, [&]() -> prometheus::Gauge& {
    return prometheus::BuildGauge().Name(name).Help(help).Register(state_->registry).Add(LabelMap(labels));
  });
}

Histogram& PrometheusMetrics::AddHistogram(const std::string& name, const std::string& help,
                                           const std::vector<double>& bounds, const MetricLabels& labels) {
  return state_->Get(state_->histograms, {name, labels}, [&]() -> prometheus::Histogram& {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(state_->registry).Add(LabelMap(labels), bounds);
  });
}

std::string PrometheusMetrics::Serialize() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace millrace::telemetry
