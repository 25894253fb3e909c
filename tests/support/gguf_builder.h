#pragma once
// Writes GGUF files for tests, right ones and (through the raw bytes) wrong ones.

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace millrace::test {

// A file in a fresh temporary place, removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes) {
    std::string name = "/tmp/millrace_test_XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd >= 0) ::close(fd);
    path_ = name;
    Rewrite(bytes);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }

  void Rewrite(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class GgufBuilder {
 public:
  GgufBuilder& Uint32(std::string_view key, uint32_t value) { return Pair(key, 4, Raw(value)); }
  GgufBuilder& Int32(std::string_view key, int32_t value) { return Pair(key, 5, Raw(value)); }
  GgufBuilder& Uint64(std::string_view key, uint64_t value) { return Pair(key, 10, Raw(value)); }
  GgufBuilder& Float32(std::string_view key, float value) { return Pair(key, 6, Raw(value)); }
  GgufBuilder& Bool(std::string_view key, bool value) { return Pair(key, 7, std::string(1, value ? '\1' : '\0')); }
  GgufBuilder& String(std::string_view key, std::string_view value) { return Pair(key, 8, Text(value)); }
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string raw = Raw(uint32_t{8}) + Raw(uint64_t{values.size()});
    for (const std::string& v : values) raw += Text(v);
    return Pair(key, 9, raw);
  }
  template <class T>
  GgufBuilder& Numbers(std::string_view key, const std::vector<T>& values) {
    static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, float>);
    std::string raw = Raw(uint32_t{std::is_same_v<T, float> ? 6 : 5}) + Raw(uint64_t{values.size()});
    for (const T v : values) raw += Raw(v);
    return Pair(key, 9, raw);
  }
  // A pair whose value's type and bytes the test chooses.
  GgufBuilder& Pair(std::string_view key, uint32_t type, std::string_view raw) {
    pairs_ += Text(key) + Raw(type) + std::string(raw);
    ++pair_count_;
    return *this;
  }

  // Dimensions as in the file, fastest first. The data lies after that of the tensors before it, aligned.
  GgufBuilder& Tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dimensions,
                      std::string_view data) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    TensorAt(name, type, dimensions, data_.size());
    data_ += data;
    return *this;
  }
  GgufBuilder& TensorAt(std::string_view name, uint32_t type, const std::vector<uint64_t>& dimensions,
                        uint64_t offset) {
    tensors_ += Text(name) + Raw(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t d : dimensions) tensors_ += Raw(d);
    tensors_ += Raw(type) + Raw(offset);
    ++tensor_count_;
    return *this;
  }
  GgufBuilder& Alignment(uint32_t bytes) {
    alignment_ = bytes;
    return Uint32("general.alignment", bytes);
  }
  GgufBuilder& Version(uint32_t version) {
    version_ = version;
    return *this;
  }

  std::string Bytes() const {
    std::string out = "GGUF" + Raw(version_) + Raw(tensor_count_) + Raw(pair_count_) + pairs_ + tensors_;
    if (tensor_count_ != 0) out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
    return out + data_;
  }

  template <class T>
  static std::string Raw(T value) {
    std::string raw(sizeof(T), '\0');
    std::memcpy(raw.data(), &value, sizeof(T));
    return raw;
  }
  static std::string Text(std::string_view text) { return Raw(uint64_t{text.size()}) + std::string(text); }

 private:
  uint32_t version_ = 3;
  uint64_t tensor_count_ = 0;
  uint64_t pair_count_ = 0;
  size_t alignment_ = 32;
  std::string pairs_;
  std::string tensors_;
  std::string data_;
};

}  // namespace millrace::test
