#pragma once
// Cost formulas of the policies. Pure functions; smaller is better; only ratios between instances of one view matter.

#include "common/cluster/instance.h"
#include "common/policy/policy.h"

namespace millrace::policy {

// Mean of the measured rates in the view, tokens a second: what to expect of an instance that has not measured its own.
// 1 when nobody has.
double ReferenceRate(const cluster::ClusterView& view);

// Predicted seconds until the instance has computed its unfinished prompt tokens, pending picks and this request.
double PrefillSeconds(const cluster::Instance& instance, const RequestFeatures& request, double reference_rate);

// Predicted cost of a decode step with this request in it, in units of one more sequence: sequences, plus the KV they
// read.
double DecodeStepCost(const cluster::Instance& instance, const RequestFeatures& request, double tokens_per_sequence);

}  // namespace millrace::policy
