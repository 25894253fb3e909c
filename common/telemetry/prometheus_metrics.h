#pragma once
// MetricRegistry over prometheus-cpp, with the text exposition that GET /metrics answers.

#include <memory>
#include <string>

#include "common/base/metrics.h"

namespace millrace::telemetry {

class PrometheusMetrics final : public MetricRegistry {
 public:
  PrometheusMetrics();
  ~PrometheusMetrics() override;

  Counter& AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels = {}) override;
  Gauge& AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels = {}) override;
  Histogram& AddHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                          const MetricLabels& labels = {}) override;

  // Prometheus text format 0.0.4. Thread-safe.
  std::string Serialize() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::telemetry
