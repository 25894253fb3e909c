#pragma once
// JSON test data as template values.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/recipe/jinja/value.h"

namespace millrace::recipe {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson ReadJson(const std::string& path) {
  std::ifstream in(path);
  return OrderedJson::parse(in);
}

inline jinja::Value ToValue(const OrderedJson& json) {
  if (json.is_null()) return jinja::None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return jinja::Value::Content(json.get<std::string>());
  if (json.is_array()) {
    jinja::List list;
    for (const auto& item : json) list.items.push_back(ToValue(item));
    return list;
  }
  jinja::Dict dict;
  for (const auto& [key, value] : json.items()) dict.Set(jinja::Value::Content(key), ToValue(value));
  return dict;
}

}  // namespace millrace::recipe
