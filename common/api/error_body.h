#pragma once
// Errors as OpenAI clients read them: {"error":{"message","type","param","code"}}, all four always there.

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/message.h"
#include "common/http/server.h"

namespace millrace::api {

constexpr size_t kMaxErrorMessageBytes = 1000;

// Precondition: not OK. Less than 4 KB.
std::string ErrorBody(const Status& status);
int HttpStatus(const Status& status);
// Content-Type, and Retry-After where a client should try again.
std::vector<http::Header> ErrorHeaders(const Status& status);

// For what the HTTP server and router refuse themselves.
http::ErrorBody RenderHttpError(int status, const std::string& message);

}  // namespace millrace::api
