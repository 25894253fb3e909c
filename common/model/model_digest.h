#pragma once
// SHA-256 of a model file, remembered by (path, size, mtime, inode) so that a file is hashed once.

#include <string>

#include "common/base/status.h"

namespace millrace::model {

// Hex. `cache_dir` empty: always hashed. A cache that can't be read or written costs time, no error. Reads the file
// with pread: one that shrinks meanwhile is kDataLoss.
StatusOr<std::string> ModelDigest(const std::string& path, const std::string& cache_dir);

}  // namespace millrace::model
