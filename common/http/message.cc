#include "common/http/message.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace millrace::http {

std::string NewId(Rng& rng, std::string_view prefix) {
  std::array<char, 32> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx%08x", static_cast<unsigned long long>(rng.Next64()),
                static_cast<unsigned>(rng.Next32()));
  return std::string(prefix) + hex.data();
}

std::string_view Request::HeaderValue(std::string_view name) const {
  auto it = std::find_if(headers.begin(), headers.end(), [&](const Header& h) { return h.name == name; });
  return it == headers.end() ? std::string_view{} : std::string_view(it->value);
}

bool Request::HasHeader(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(), [&](const Header& h) { return h.name == name; });
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

}  // namespace millrace::http
