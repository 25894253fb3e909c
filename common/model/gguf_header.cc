#include "common/model/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace millrace::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF fields are read as they lie in the file");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;            // empty key, type, smallest value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // empty name, count, one dimension, type, offset
constexpr uint64_t kDefaultAlignment = 32;

enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// 0 for types that are not one fixed-size value.
uint64_t ScalarBytes(uint32_t type) {
  static constexpr uint8_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

// Reads forward through the file in windows; never past its end.
class Cursor {
 public:
  Cursor(uint64_t file_bytes, const ReadAt& read) : file_bytes_(file_bytes), read_(read) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_bytes_ - position_; }

  Status Bytes(std::span<std::byte> out, std::string_view what) {
    if (out.size() > left()) return Truncated(out.size(), what);
    while (!out.empty()) {
      if (position_ < window_start_ || position_ >= window_start_ + window_.size()) MR_RETURN_IF_ERROR(Refill());
      const size_t at = static_cast<size_t>(position_ - window_start_);
      const size_t n = std::min(out.size(), window_.size() - at);
      std::memcpy(out.data(), window_.data() + at, n);
      out = out.subspan(n);
      position_ += n;
    }
    return OkStatus();
  }

  template <class T>
  StatusOr<T> Scalar(std::string_view what) {
    T value;
    MR_RETURN_IF_ERROR(Bytes(std::as_writable_bytes(std::span(&value, 1)), what));
    return value;
  }

  StatusOr<std::string> String(uint64_t max_bytes, std::string_view what) {
    const uint64_t at = position_;
    MR_ASSIGN_OR_RETURN(const uint64_t bytes, Scalar<uint64_t>(what));
    if (bytes > max_bytes || bytes > left()) {
      return InvalidArgument(std::string(what) + " at byte " + std::to_string(at) + " claims " + std::to_string(bytes) +
                             " bytes; " +
                             (bytes > left() ? std::to_string(left()) + " are left in the file"
                                             : "at most " + std::to_string(max_bytes) + " are allowed"));
    }
    std::string text(static_cast<size_t>(bytes), '\0');
    MR_RETURN_IF_ERROR(Bytes(std::as_writable_bytes(std::span(text)), what));
    return text;
  }

  Status Truncated(uint64_t wanted, std::string_view what) const {
    return InvalidArgument("the file ends inside " + std::string(what) + " at byte " + std::to_string(position_) +
                           " (" + std::to_string(wanted) + " bytes wanted, " + std::to_string(left()) +
                           " left): it is truncated or corrupt");
  }

 private:
  Status Refill() {
    constexpr uint64_t kWindowBytes = 256 * 1024;
    window_.resize(static_cast<size_t>(std::min(kWindowBytes, left())));
    window_start_ = position_;
    return read_(position_, window_);
  }

  const uint64_t file_bytes_;
  const ReadAt& read_;
  uint64_t position_ = 0;
  uint64_t window_start_ = 0;
  std::vector<std::byte> window_;
};

using Number = std::variant<uint64_t, int64_t, double, bool>;

template <class Stored, class As>
StatusOr<Number> NumberAs(Cursor& cursor, std::string_view what) {
  MR_ASSIGN_OR_RETURN(const Stored value, cursor.Scalar<Stored>(what));
  return Number(static_cast<As>(value));
}

StatusOr<Number> ReadNumber(Cursor& cursor, uint32_t type, std::string_view what) {
  switch (type) {
    case kUint8:
      return NumberAs<uint8_t, uint64_t>(cursor, what);
    case kInt8:
      return NumberAs<int8_t, int64_t>(cursor, what);
    case kUint16:
      return NumberAs<uint16_t, uint64_t>(cursor, what);
    case kInt16:
      return NumberAs<int16_t, int64_t>(cursor, what);
    case kUint32:
      return NumberAs<uint32_t, uint64_t>(cursor, what);
    case kInt32:
      return NumberAs<int32_t, int64_t>(cursor, what);
    case kFloat32:
      return NumberAs<float, double>(cursor, what);
    case kBool: {
      MR_ASSIGN_OR_RETURN(const uint8_t value, cursor.Scalar<uint8_t>(what));
      if (value > 1) {
        return InvalidArgument(std::string(what) + " at byte " + std::to_string(cursor.position() - 1) +
                               " is a bool of value " + std::to_string(value));
      }
      return Number(value == 1);
    }
    case kUint64:
      return NumberAs<uint64_t, uint64_t>(cursor, what);
    case kInt64:
      return NumberAs<int64_t, int64_t>(cursor, what);
    case kFloat64:
      return NumberAs<double, double>(cursor, what);
    default:
      return InvalidArgument(std::string(what) + " has value type " + std::to_string(type) +
                             ", which GGUF does not define");
  }
}

StatusOr<MetadataValue> ReadNumberArray(Cursor& cursor, uint32_t type, uint64_t count, const std::string& what) {
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<bool> bools;
  for (uint64_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(const Number number, ReadNumber(cursor, type, what));
    if (const auto* u = std::get_if<uint64_t>(&number)) {
      if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgument(what + " holds " + std::to_string(*u) + ", larger than a signed 64-bit integer");
      }
      integers.push_back(static_cast<int64_t>(*u));
    } else if (const auto* s = std::get_if<int64_t>(&number)) {
      integers.push_back(*s);
    } else if (const auto* d = std::get_if<double>(&number)) {
      floats.push_back(*d);
    } else {
      bools.push_back(std::get<bool>(number));
    }
  }
  if (type == kFloat32 || type == kFloat64) return MetadataValue(std::move(floats));
  if (type == kBool) return MetadataValue(std::move(bools));
  return MetadataValue(std::move(integers));
}

StatusOr<MetadataValue> ReadArray(Cursor& cursor, const std::string& what) {
  const uint64_t at = cursor.position();
  MR_ASSIGN_OR_RETURN(const uint32_t type, cursor.Scalar<uint32_t>(what));
  MR_ASSIGN_OR_RETURN(const uint64_t count, cursor.Scalar<uint64_t>(what));
  if (type == kArray) return Unsupported(what + " is an array of arrays; we read arrays of scalars and strings");
  const uint64_t element = type == kString ? 8 : ScalarBytes(type);
  if (element == 0) {
    return InvalidArgument(what + " at byte " + std::to_string(at) + " is an array of value type " +
                           std::to_string(type) + ", which GGUF does not define");
  }
  if (count > cursor.left() / element) {
    return InvalidArgument(what + " at byte " + std::to_string(at) + " claims " + std::to_string(count) +
                           " elements; " + std::to_string(cursor.left()) + " bytes are left in the file");
  }
  if (type != kString) return ReadNumberArray(cursor, type, count, what);
  std::vector<std::string> strings;
  strings.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(strings.emplace_back(), cursor.String(cursor.left(), what));
  }
  return MetadataValue(std::move(strings));
}

StatusOr<MetadataValue> ReadValue(Cursor& cursor, const std::string& what) {
  MR_ASSIGN_OR_RETURN(const uint32_t type, cursor.Scalar<uint32_t>(what));
  if (type == kArray) return ReadArray(cursor, what);
  if (type == kString) {
    MR_ASSIGN_OR_RETURN(std::string text, cursor.String(cursor.left(), what));
    return MetadataValue(std::move(text));
  }
  MR_ASSIGN_OR_RETURN(const Number number, ReadNumber(cursor, type, what));
  return std::visit([](auto v) { return MetadataValue(v); }, number);
}

// Tensor of offset relative to the data section, its dimensions checked for overflow.
StatusOr<Tensor> ReadTensorInfo(Cursor& cursor) {
  const std::string at = "tensor description at byte " + std::to_string(cursor.position());
  Tensor tensor;
  MR_ASSIGN_OR_RETURN(tensor.name, cursor.String(kMaxTensorNameBytes, at));
  const std::string what = "tensor '" + tensor.name + "'";
  MR_ASSIGN_OR_RETURN(const uint32_t dimensions, cursor.Scalar<uint32_t>(what));
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    return InvalidArgument(what + " has " + std::to_string(dimensions) + " dimensions; 1 to 4 are possible");
  }
  uint64_t rows = 1;
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    MR_ASSIGN_OR_RETURN(const uint64_t size, cursor.Scalar<uint64_t>(what));
    // 2^60 elements can't lie in any file and their size in bytes still fits.
    constexpr uint64_t kMaxElements = uint64_t{1} << 60;
    if (size == 0 || size > kMaxElements / elements) {
      return InvalidArgument(what + " has size " + std::to_string(size) + " in dimension " + std::to_string(d));
    }
    elements *= size;
    if (d == 0) {
      tensor.cols = size;
    } else {
      rows *= size;
    }
  }
  tensor.rows = rows;
  MR_ASSIGN_OR_RETURN(const uint32_t type, cursor.Scalar<uint32_t>(what));
  MR_ASSIGN_OR_RETURN(tensor.offset, cursor.Scalar<uint64_t>(what));
  tensor.type = static_cast<TensorType>(type);
  const auto traits = TraitsOf(tensor.type);
  if (!traits.ok()) return traits.status().Annotate(what);
  if (tensor.cols % traits->block_elements != 0) {
    return InvalidArgument(what + " has rows of " + std::to_string(tensor.cols) + " elements, not a multiple of the " +
                           std::to_string(traits->block_elements) + " in a block of " + std::string(traits->name));
  }
  return tensor;
}

// Makes offsets absolute and checks that each tensor is aligned, inside the file and apart from the others.
Status PlaceTensors(std::vector<Tensor>& tensors, uint64_t alignment, uint64_t header_end, uint64_t file_bytes) {
  const uint64_t data_start = (header_end + alignment - 1) / alignment * alignment;
  for (Tensor& t : tensors) {
    const std::string what = "tensor '" + t.name + "' at offset " + std::to_string(t.offset) + " of the data";
    if (t.offset % alignment != 0) {
      return InvalidArgument(what + " is not aligned to " + std::to_string(alignment) + " bytes");
    }
    if (data_start > file_bytes || t.offset > file_bytes - data_start ||
        t.bytes() > file_bytes - data_start - t.offset) {
      return InvalidArgument(what + " needs " + std::to_string(t.bytes()) + " bytes but the file ends at " +
                             std::to_string(file_bytes) + " (data starts at " + std::to_string(data_start) +
                             "): it is truncated or corrupt");
    }
    t.offset += data_start;
  }
  std::vector<const Tensor*> sorted;
  for (const Tensor& t : tensors) sorted.push_back(&t);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->offset + sorted[i - 1]->bytes() > sorted[i]->offset) {
      return InvalidArgument("tensors '" + sorted[i - 1]->name + "' and '" + sorted[i]->name + "' overlap at byte " +
                             std::to_string(sorted[i]->offset));
    }
  }
  return OkStatus();
}

StatusOr<uint64_t> AlignmentOf(const GgufHeader& header) {
  const auto it = header.metadata.find("general.alignment");
  if (it == header.metadata.end()) return kDefaultAlignment;
  const auto* value = std::get_if<uint64_t>(&it->second);
  if (value == nullptr || !std::has_single_bit(*value) || *value > (uint64_t{1} << 30)) {
    return InvalidArgument("general.alignment must be a power of two");
  }
  return *value;
}

Status CheckNotSplit(const GgufHeader& header) {
  const auto it = header.metadata.find("split.count");
  if (it == header.metadata.end()) return OkStatus();
  const auto* value = std::get_if<uint64_t>(&it->second);
  if (value != nullptr && *value <= 1) return OkStatus();
  return Unsupported("it is one part of a split model" +
                     (value != nullptr ? " (split.count " + std::to_string(*value) + ")" : std::string()) +
                     "; join the parts with llama-gguf-split --merge and use the result");
}

StatusOr<uint32_t> ReadVersion(Cursor& cursor) {
  MR_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Scalar<uint32_t>("the magic number"));
  if (magic != kMagic) {
    return InvalidArgument("it does not start with \"GGUF\": it is not a GGUF file");
  }
  MR_ASSIGN_OR_RETURN(const uint32_t version, cursor.Scalar<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if (version != 0 && (version & 0xFFFFU) == 0) {
    return InvalidArgument("it is a big-endian GGUF file; only little-endian ones can be read");
  }
  if (version == 1) return Unsupported("GGUF version 1; versions 2 and 3 can be read");
  return InvalidArgument("GGUF version " + std::to_string(version) + "; versions 2 and 3 can be read");
}

}  // namespace

StatusOr<GgufHeader> ParseGgufHeader(uint64_t file_bytes, const ReadAt& read) {
  Cursor cursor(file_bytes, read);
  GgufHeader header;
  MR_ASSIGN_OR_RETURN(header.version, ReadVersion(cursor));
  MR_ASSIGN_OR_RETURN(const uint64_t tensors, cursor.Scalar<uint64_t>("the tensor count"));
  MR_ASSIGN_OR_RETURN(const uint64_t pairs, cursor.Scalar<uint64_t>("the metadata count"));
  if (tensors > cursor.left() / kMinTensorBytes) {
    return InvalidArgument("it claims " + std::to_string(tensors) + " tensors; " + std::to_string(cursor.left()) +
                           " bytes can't describe that many");
  }
  if (pairs > cursor.left() / kMinPairBytes) {
    return InvalidArgument("it claims " + std::to_string(pairs) + " metadata pairs; " + std::to_string(cursor.left()) +
                           " bytes can't hold that many");
  }
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string at = std::to_string(cursor.position());
    MR_ASSIGN_OR_RETURN(std::string key, cursor.String(kMaxKeyBytes, "a metadata key"));
    MR_ASSIGN_OR_RETURN(MetadataValue value, ReadValue(cursor, "metadata '" + key + "'"));
    if (!header.metadata.emplace(key, std::move(value)).second) {
      return InvalidArgument("metadata key '" + key + "' comes again at byte " + at);
    }
  }
  // Before the tensors: a later part of a split file may have none, and the split is what the user must hear of.
  MR_RETURN_IF_ERROR(CheckNotSplit(header));
  MR_ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(header));

  std::set<std::string> names;
  header.tensors.reserve(static_cast<size_t>(tensors));
  for (uint64_t i = 0; i < tensors; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor tensor, ReadTensorInfo(cursor));
    if (!names.insert(tensor.name).second) return InvalidArgument("tensor '" + tensor.name + "' comes twice");
    header.tensors.push_back(std::move(tensor));
  }
  MR_RETURN_IF_ERROR(PlaceTensors(header.tensors, alignment, cursor.position(), file_bytes));
  return header;
}

}  // namespace millrace::model
