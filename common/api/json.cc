#include "common/api/json.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/recipe/utf8.h"

namespace millrace::api {

namespace {

bool IsFieldName(std::string_view key) {
  if (key.empty() || key.size() > 40) return false;
  for (char c : key) {
    if ((c < 'a' || c > 'z') && c != '_') return false;
  }
  return true;
}

// Builds a Json from the parser's events, and stops at the first thing we don't take.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Add(Json{nullptr}); }
  bool boolean(bool value) override { return Add(Json{value}); }
  bool number_integer(number_integer_t value) override { return Add(Json{static_cast<int64_t>(value)}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return Add(Json{static_cast<double>(value)});
    return Add(Json{static_cast<int64_t>(value)});
  }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json{value}); }
  bool string(string_t& value) override { return Add(Json{std::move(value)}); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json{JsonObject{}}); }
  bool start_array(std::size_t) override { return Open(Json{JsonArray{}}); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    if (open_.size() == 1) top_key_ = value;
    keys_.back() = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      Status out_of_range(Code::kInvalidArgument, Reason::kBadValue, "A number in the request body is out of range.");
      status_ = std::move(out_of_range).WithParam(IsFieldName(top_key_) ? top_key_ : "");
    } else {
      status_ = InvalidArgument("The request body is not valid JSON (at byte " + std::to_string(position) + ").");
    }
    return false;
  }

  StatusOr<Json> Take() && {
    if (!status_.ok()) return std::move(status_);
    return std::move(root_);
  }

 private:
  // Values that are open, innermost last. Parents hold still while a child is open: it is added when it closes.
  bool Add(Json value) {
    if (++values_ > kMaxJsonValues) {
      status_ = InvalidArgument("The request body holds more than " + std::to_string(kMaxJsonValues) + " JSON values.");
      return false;
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<JsonArray>(&open_.back().value)) {
      array->push_back(std::move(value));
    } else {
      std::get<JsonObject>(open_.back().value).emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  bool Open(Json value) {
    if (open_.size() >= kMaxJsonDepth) {
      status_ = InvalidArgument("The request body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels.");
      return false;
    }
    open_.push_back(std::move(value));
    keys_.emplace_back();
    return true;
  }
  bool Close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return Add(std::move(value));
  }

  Json root_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // the key last read in each open value
  std::string top_key_;
  size_t values_ = 0;
  Status status_;
};

}  // namespace

const Json* Json::Find(std::string_view key) const {
  const JsonObject& members = *object();
  for (auto it = members.rbegin(); it != members.rend(); ++it) {
    if (it->first == key) return it->second.is_null() ? nullptr : &it->second;
  }
  return nullptr;
}

StatusOr<Json> ParseJson(std::string_view text) {
  Builder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Take();
}

void AppendJsonString(std::string& out, std::string_view text) {
  std::string repaired;
  if (!recipe::IsValidUtf8(text)) {
    repaired = recipe::ReplaceInvalidUtf8(text);
    text = repaired;
  }
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
          out += escaped;
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string JsonString(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

}  // namespace millrace::api
