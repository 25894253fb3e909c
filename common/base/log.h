#pragma once
// Structured logs: one line an event, with fields. Code logs an event once, at the edge where it is handled. The sink
// is set once at start by the process (common/telemetry has the JSON and text sinks); the default writes text to
// stderr.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace millrace {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view key, std::string_view value) : key(key), value(value) {}
  LogField(std::string_view key, const char* value) : key(key), value(value) {}
  LogField(std::string_view key, const std::string& value) : key(key), value(value) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  LogField(std::string_view key, T value) : key(key), value(std::to_string(value)), is_number(true) {}

  std::string key;
  std::string value;
  bool is_number = false;
};

// Thread-safe; `sink` must be too. `event` is a constant snake_case name.
using LogSink = void (*)(LogLevel level, std::string_view event, const LogField* fields, size_t field_count);
void SetLogSink(LogSink sink, LogLevel least);
bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// The line that the sink would write at that time, for what can't call it when it happens: a signal handler.
using LogFormatter = std::string (*)(int64_t unix_ms, LogLevel level, std::string_view event, const LogField* fields,
                                     size_t field_count);
void SetLogFormatter(LogFormatter formatter);
std::string FormatLog(int64_t unix_ms, LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace millrace
