#pragma once

#include <string_view>

#include "common/recipe/jinja/ast.h"

namespace millrace::recipe::jinja {

// Throws a syntax failure that names the line; nesting is bounded.
Block Parse(std::string_view source);

}  // namespace millrace::recipe::jinja
