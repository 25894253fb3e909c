#pragma once
// The process's log lines on stderr, as text for people or one JSON object a line.

#include <string>

#include "common/base/log.h"

namespace millrace::telemetry {

enum class LogFormat { kText, kJson };

// Sets the sink for the whole process. `program` is a field of every line.
void InstallLogSink(LogFormat format, LogLevel least, const std::string& program);

// "debug" | "info" | "warning" | "error"; anything else is kInfo.
LogLevel ParseLogLevel(const std::string& text);

// One line, newline included; for InstallLogSink and tests.
std::string FormatLogLine(LogFormat format, LogLevel level, std::string_view program, int64_t unix_ms,
                          std::string_view event, const LogField* fields, size_t field_count);

}  // namespace millrace::telemetry
