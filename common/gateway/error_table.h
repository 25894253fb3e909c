#pragma once
// What an error means to a client and to a retry: the one table of the project. Rows are found by reason, then by code.

#include "common/base/status.h"

namespace millrace::gateway {

enum class RetryClass : uint8_t {
  kNever,          // the request itself is at fault
  kElsewhere,      // another instance may do; counts against the request's budget
  kElsewhereFree,  // nobody failed: the instance gave the request up or is leaving
  kLater,          // everybody is full, or nobody is there; ask again after a while
};
const char* RetryClassName(RetryClass retry);

struct ErrorRow {
  uint16_t http_status = 500;
  const char* type = "server_error";  // of the OpenAI error body
  const char* code = nullptr;         // nullptr = null
  RetryClass retry = RetryClass::kElsewhere;
};

// Precondition: not OK.
const ErrorRow& FindErrorRow(const Status& status);

// `status`, which came from inside the cluster, in words that are fit for a client: a mistake of the client keeps its
// text, anything else says what the client can do. Precondition: not OK.
Status ForClient(const Status& status);

}  // namespace millrace::gateway
