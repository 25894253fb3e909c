#include "common/telemetry/log_sink.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>

#include "common/base/time.h"

namespace millrace::telemetry {
namespace {

struct SinkState {
  LogFormat format = LogFormat::kText;
  std::string program;
};

SinkState& State() {
  static SinkState state;
  return state;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

void AppendJsonString(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out.append(escape);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string Timestamp(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03dZ", static_cast<int>(unix_ms % 1000));
  return text;
}

std::string FormatForProcess(int64_t unix_ms, LogLevel level, std::string_view event, const LogField* fields,
                             size_t field_count) {
  return FormatLogLine(State().format, level, State().program, unix_ms, event, fields, field_count);
}

void WriteLine(LogLevel level, std::string_view event, const LogField* fields, size_t field_count) {
  const std::string line = FormatForProcess(WallClockMs(), level, event, fields, field_count);
  // One write a line, so that lines of several threads and processes stay whole.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::string FormatLogLine(LogFormat format, LogLevel level, std::string_view program, int64_t unix_ms,
                          std::string_view event, const LogField* fields, size_t field_count) {
  std::string line;
  if (format == LogFormat::kJson) {
    line.append("{\"time\":\"").append(Timestamp(unix_ms)).append("\",\"level\":\"").append(LevelName(level));
    line.append("\",\"program\":");
    AppendJsonString(line, program);
    line.append(",\"event\":");
    AppendJsonString(line, event);
    for (size_t i = 0; i < field_count; ++i) {
      line.push_back(',');
      AppendJsonString(line, fields[i].key);
      line.push_back(':');
      if (fields[i].is_number && fields[i].value.find_first_of("in") == std::string::npos) {
        line.append(fields[i].value);
      } else {
        AppendJsonString(line, fields[i].value);
      }
    }
    line.append("}\n");
    return line;
  }
  line.append(Timestamp(unix_ms))
      .append(" ")
      .append(LevelName(level))
      .append(" ")
      .append(program)
      .append(" ")
      .append(event);
  for (size_t i = 0; i < field_count; ++i) {
    line.append(" ").append(fields[i].key).append("=");
    if (fields[i].value.find_first_of(" \"\n\t=") != std::string::npos || fields[i].value.empty()) {
      AppendJsonString(line, fields[i].value);
    } else {
      line.append(fields[i].value);
    }
  }
  line.push_back('\n');
  return line;
}

void InstallLogSink(LogFormat format, LogLevel least, const std::string& program) {
  State() = {format, program};
  SetLogSink(&WriteLine, least);
  SetLogFormatter(&FormatForProcess);
}

LogLevel ParseLogLevel(const std::string& text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

}  // namespace millrace::telemetry
