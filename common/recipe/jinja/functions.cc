// Functions that every template can call.

#include <array>
#include <string>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/objects.h"

namespace millrace::recipe::jinja {
namespace {

class Function final : public Object {
 public:
  using Body = Value (*)(Interpreter&, const Arguments&);
  explicit Function(Body body) : body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override { return body_(interpreter, arguments); }

 private:
  Body body_;
};

// Gives its separator each time but the first.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  uint32_t depth() const override { return separator_.depth() + 1; }
  Value Call(Interpreter&, const Arguments&) override {
    if (used_) return separator_;
    used_ = true;
    return Value::Literal("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

class Cycler final : public Object {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  uint32_t depth() const override { return items_.depth() + 1; }
  std::optional<Value> Attribute(std::string_view name) override {
    const std::vector<Value>& items = items_.list()->items;
    if (name == "current") return items[at_];
    if (name == "next") return Value(std::shared_ptr<Object>(std::make_shared<Step>(*this, false)));
    if (name == "reset") return Value(std::shared_ptr<Object>(std::make_shared<Step>(*this, true)));
    return std::nullopt;
  }

 private:
  // next and reset.
  class Step final : public Object {
   public:
    Step(Cycler& cycler, bool resets) : cycler_(cycler), resets_(resets) {}
    std::string_view type_name() const override { return "method"; }
    bool callable() const override { return true; }
    Value Call(Interpreter&, const Arguments&) override {
      const std::vector<Value>& items = cycler_.items_.list()->items;
      const Value current = items[cycler_.at_];
      cycler_.at_ = resets_ ? 0 : (cycler_.at_ + 1) % items.size();
      return resets_ ? Value(None{}) : current;
    }

   private:
    Cycler& cycler_;  // tracked by the interpreter, so it lives until the end
    const bool resets_;
  };

  Value items_;
  size_t at_ = 0;
};

Value Range(Interpreter& interpreter, const Arguments& a) {
  constexpr int64_t kMaxRange = 100000;
  const size_t count = a.positional.size();
  if (count == 0 || count > 3) Fail(FailureKind::kType, "range expected 1 to 3 arguments");
  const int64_t start = count > 1 ? a.Integer(0, "start", 0) : 0;
  const int64_t stop = a.Integer(count > 1 ? 1 : 0, "stop", 0);
  const int64_t step = count > 2 ? a.Integer(2, "step", 1) : 1;
  if (step == 0) Fail(FailureKind::kValue, "range() arg 3 must not be zero");
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.items.size()) >= kMaxRange) {
      Fail(FailureKind::kOverflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    out.items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return interpreter.NewList(std::move(out));
}

Value MakeNamespace(Interpreter& interpreter, const Arguments& a) {
  auto space = std::make_shared<Namespace>();
  for (const Value& source : a.positional) {
    if (source.dict() == nullptr) Fail(FailureKind::kType, "namespace takes a mapping");
    for (const auto& [key, value] : source.dict()->items()) space->Set(key.ToText().bytes(), value);
  }
  for (const auto& [name, value] : a.named) space->Set(name, value);
  interpreter.Track(space);
  return std::shared_ptr<Object>(std::move(space));
}

Value MakeDict(Interpreter&, const Arguments& a) {
  Dict dict;
  for (const Value& source : a.positional) {
    if (source.dict() == nullptr) Fail(FailureKind::kType, "dict takes a mapping");
    for (const auto& [key, value] : source.dict()->items()) dict.Set(key, value);
  }
  for (const auto& [name, value] : a.named) dict.Set(Value::Literal(name), value);
  return dict;
}

Value RaiseException(Interpreter&, const Arguments& a) {
  Fail(FailureKind::kRaised, a.positional.empty() ? "the template refused" : a.positional[0].ToText().bytes());
}

Value MakeJoiner(Interpreter& interpreter, const Arguments& a) {
  const Value* separator = a.Find(0, "sep");
  auto joiner = std::make_shared<Joiner>(separator != nullptr ? *separator : Value::Literal(", "));
  interpreter.Track(joiner);
  return std::shared_ptr<Object>(std::move(joiner));
}

Value MakeCycler(Interpreter& interpreter, const Arguments& a) {
  if (a.positional.empty()) Fail(FailureKind::kRuntime, "at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>(Value(List{.items = a.positional, .is_tuple = false, .names = {}}));
  interpreter.Track(cycler);
  return std::shared_ptr<Object>(std::move(cycler));
}

struct CivilTime {
  int64_t year;
  int64_t month;  // 1..12
  int64_t day;
  int64_t hour;
  int64_t minute;
  int64_t second;
  int64_t weekday;      // 0 = Sunday
  int64_t day_of_year;  // 1..366
};

int64_t DaysBeforeYear(int64_t year) {
  const int64_t y = year - 1;
  return y * 365 + y / 4 - y / 100 + y / 400;
}

// UTC, proleptic Gregorian, years 1 to 9999.
CivilTime ToCivil(int64_t unix_s) {
  constexpr int64_t kEpoch = 719162;  // days before 1970 in that count
  unix_s = std::min<int64_t>(std::max<int64_t>(unix_s, -62135596800), 253402300799);
  int64_t days = unix_s / 86400;
  int64_t second = unix_s % 86400;
  if (second < 0) {
    second += 86400;
    --days;
  }
  const int64_t weekday = ((days + 4) % 7 + 7) % 7;
  const int64_t absolute = days + kEpoch;
  int64_t year = absolute / 366 + 1;
  while (DaysBeforeYear(year + 1) <= absolute) ++year;
  int64_t day = absolute - DaysBeforeYear(year);
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const std::array<int64_t, 12> lengths = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const int64_t day_of_year = day + 1;
  int64_t month = 0;
  while (day >= lengths[static_cast<size_t>(month)]) day -= lengths[static_cast<size_t>(month++)];
  return {year, month + 1, day + 1, second / 3600, second / 60 % 60, second % 60, weekday, day_of_year};
}

std::string Padded(int64_t value, size_t width, char fill = '0') {
  std::string text = std::to_string(value);
  return text.size() < width ? std::string(width - text.size(), fill) + text : text;
}

std::string FormatTime(const CivilTime& t, char code, bool bare) {
  static constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                               "Thursday", "Friday", "Saturday"};
  static constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                                 "July",    "August",   "September", "October", "November", "December"};
  const auto number = [&](int64_t value, size_t width) { return Padded(value, bare ? 0 : width); };
  const std::string day(kDays[t.weekday]);
  const std::string month(kMonths[t.month - 1]);
  const int64_t hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  switch (code) {
    case 'Y':
      return Padded(t.year, 4);
    case 'y':
      return number(t.year % 100, 2);
    case 'm':
      return number(t.month, 2);
    case 'd':
      return number(t.day, 2);
    case 'e':
      return Padded(t.day, 2, ' ');
    case 'H':
      return number(t.hour, 2);
    case 'I':
      return number(hour12, 2);
    case 'M':
      return number(t.minute, 2);
    case 'S':
      return number(t.second, 2);
    case 'p':
      return t.hour < 12 ? "AM" : "PM";
    case 'A':
      return day;
    case 'a':
      return day.substr(0, 3);
    case 'B':
      return month;
    case 'b':
    case 'h':
      return month.substr(0, 3);
    case 'j':
      return number(t.day_of_year, 3);
    case 'u':
      return std::to_string(t.weekday == 0 ? 7 : t.weekday);
    case 'w':
      return std::to_string(t.weekday);
    case 'F':
      return FormatTime(t, 'Y', false) + "-" + Padded(t.month, 2) + "-" + Padded(t.day, 2);
    case 'T':
      return Padded(t.hour, 2) + ":" + Padded(t.minute, 2) + ":" + Padded(t.second, 2);
    case 'D':
      return Padded(t.month, 2) + "/" + Padded(t.day, 2) + "/" + Padded(t.year % 100, 2);
    case 'Z':
      return "UTC";
    case 'z':
      return "+0000";
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default:
      return std::string("%") + code;
  }
}

Value StrftimeNow(Interpreter& interpreter, const Arguments& a) {
  if (a.positional.empty()) Fail(FailureKind::kType, "strftime_now needs a format");
  const std::string format = a.positional[0].ToText().bytes();
  const CivilTime time = ToCivil(interpreter.now_unix_s());
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    const bool bare = format[i + 1] == '-' && i + 2 < format.size();
    i += bare ? 2 : 1;
    out += FormatTime(time, format[i], bare);
  }
  return interpreter.NewText(Text::Literal(std::move(out)));
}

}  // namespace

void AddFunctions(std::map<std::string, Value, std::less<>>& globals) {
  const std::pair<const char*, Function::Body> functions[] = {{"range", Range},
                                                              {"namespace", MakeNamespace},
                                                              {"dict", MakeDict},
                                                              {"raise_exception", RaiseException},
                                                              {"joiner", MakeJoiner},
                                                              {"cycler", MakeCycler},
                                                              {"strftime_now", StrftimeNow}};
  for (const auto& [name, body] : functions) {
    globals.try_emplace(name, Value(std::shared_ptr<Object>(std::make_shared<Function>(body))));
  }
}

}  // namespace millrace::recipe::jinja
