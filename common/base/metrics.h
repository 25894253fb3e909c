#pragma once
// Metrics as the code that counts sees them. common/telemetry serves them in Prometheus' format; every metric exists at
// 0 from the moment it is made. Names: millrace_<service>_<thing>_<unit>[_total]. Thread-safe.

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Add(double by = 1) = 0;
  virtual double Value() const = 0;
};

class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual double Value() const = 0;
};

class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// References stay valid as long as the registry. Asking again for the same name and labels gives the same metric.
class MetricRegistry {
 public:
  virtual ~MetricRegistry() = default;
  virtual Counter& AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels = {}) = 0;
  virtual Gauge& AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels = {}) = 0;
  virtual Histogram& AddHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                                  const MetricLabels& labels = {}) = 0;
};

// A registry that keeps values and serves nobody: for tests and tools.
std::unique_ptr<MetricRegistry> MakeMemoryMetrics();

}  // namespace millrace
