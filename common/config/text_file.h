#pragma once
// Small text files, such as configuration and /proc.

#include <string>

#include "common/base/status.h"

namespace millrace::config {

// All of it. Any failure, also one in the middle (a folder, a process of /proc that has ended), is an error that names
// the path, kNotFound when it is not there. Streams of the standard library throw then, if read through iterators.
StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace millrace::config
