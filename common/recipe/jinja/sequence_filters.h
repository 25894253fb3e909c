#pragma once

#include <string_view>

#include "common/recipe/jinja/builtins.h"

namespace millrace::recipe::jinja {

// The part of FindFilter that works on sequences; null when there is none of that name.
FilterFunction FindSequenceFilter(std::string_view name);

}  // namespace millrace::recipe::jinja
