#include "common/base/metrics.h"

#include <atomic>
#include <map>
#include <mutex>

namespace millrace {
namespace {

class MemoryCounter final : public Counter {
 public:
  void Add(double by) override {
    double old = value_.load();
    while (!value_.compare_exchange_weak(old, old + by)) {
    }
  }
  double Value() const override { return value_.load(); }

 private:
  std::atomic<double> value_{0};
};

class MemoryGauge final : public Gauge {
 public:
  void Set(double value) override { value_ = value; }
  double Value() const override { return value_; }

 private:
  std::atomic<double> value_{0};
};

class MemoryHistogram final : public Histogram {
 public:
  void Observe(double) override {}
};

template <class Metric>
using Family = std::map<std::pair<std::string, MetricLabels>, std::unique_ptr<Metric>>;

class MemoryMetrics final : public MetricRegistry {
 public:
  Counter& AddCounter(const std::string& name, const std::string&, const MetricLabels& labels) override {
    return Get<MemoryCounter>(counters_, name, labels);
  }
  Gauge& AddGauge(const std::string& name, const std::string&, const MetricLabels& labels) override {
    return Get<MemoryGauge>(gauges_, name, labels);
  }
  Histogram& AddHistogram(const std::string& name, const std::string&, const std::vector<double>&,
                          const MetricLabels& labels) override {
    return Get<MemoryHistogram>(histograms_, name, labels);
  }

 private:
  template <class Metric>
  Metric& Get(Family<Metric>& family, const std::string& name, const MetricLabels& labels) {
    std::lock_guard lock(mutex_);
    auto& metric = family[{name, labels}];
    if (metric == nullptr) metric = std::make_unique<Metric>();
    return *metric;
  }

  std::mutex mutex_;
  Family<MemoryCounter> counters_;      // guarded by mutex_
  Family<MemoryGauge> gauges_;          // guarded by mutex_
  Family<MemoryHistogram> histograms_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<MetricRegistry> MakeMemoryMetrics() { return std::make_unique<MemoryMetrics>(); }

}  // namespace millrace
