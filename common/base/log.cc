#include "common/base/log.h"

#include <atomic>
#include <cstdio>

namespace millrace {
namespace {

std::string FormatPlain(int64_t, LogLevel level, std::string_view event, const LogField* fields, size_t field_count) {
  static constexpr char kLetters[] = "DIWE";
  std::string line(1, kLetters[static_cast<int>(level)]);
  line.append(" ").append(event);
  for (size_t i = 0; i < field_count; ++i) line.append(" ").append(fields[i].key).append("=").append(fields[i].value);
  line.push_back('\n');
  return line;
}

void StderrSink(LogLevel level, std::string_view event, const LogField* fields, size_t field_count) {
  const std::string line = FormatPlain(0, level, event, fields, field_count);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::atomic<LogSink> g_sink{&StderrSink};
std::atomic<LogFormatter> g_formatter{&FormatPlain};
std::atomic<LogLevel> g_least{LogLevel::kInfo};

}  // namespace

void SetLogSink(LogSink sink, LogLevel least) {
  g_sink = sink;
  g_least = least;
}

bool LogEnabled(LogLevel level) { return level >= g_least.load(std::memory_order_relaxed); }

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (LogEnabled(level)) g_sink.load()(level, event, fields.begin(), fields.size());
}

void SetLogFormatter(LogFormatter formatter) { g_formatter = formatter; }

std::string FormatLog(int64_t unix_ms, LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  return g_formatter.load()(unix_ms, level, event, fields.begin(), fields.size());
}

}  // namespace millrace
