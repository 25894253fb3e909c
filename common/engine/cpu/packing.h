#pragma once
// How a tensor of a model file is laid out for the kernels. Pure functions over bytes.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/engine/cpu/kernels.h"
#include "common/model/gguf.h"

namespace millrace::engine::cpu {

// Any change of a layout below, or of Packing, changes this number: packed files of another number are not used.
inline constexpr uint32_t kPackingVersion = 1;

enum class Storage : uint8_t {
  kPanels,  // panels of 16 rows (kernels.h), rows padded to 16 with zeros
  kRaw,     // rows as in the file; expanded to floats panel by panel when used
  kVector,  // floats, padded to 16 with zeros
};

struct TensorShape {
  Storage storage = Storage::kVector;
  Packing packing = Packing::kF32;  // of kPanels
  model::TensorType type = model::TensorType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t part_bytes = 0;  // of a panel (kPanels), of a row (kRaw), of everything (kVector)

  uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  uint64_t bytes() const;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

// kInvalidArgument when the tensor is too large or empty.
StatusOr<TensorShape> ShapeFor(const model::Tensor& tensor);

// `rows`: `count` whole rows of the file from row first_row on, a multiple of 16; they land at their place in `out`,
// the whole tensor's shape.bytes(), zeroed before. A vector is one row.
void PackRows(const TensorShape& shape, std::span<const std::byte> rows, uint32_t first_row, uint32_t count,
              std::byte* out);

// Row `row` as floats; `out` has room for cols.
void UnpackRow(const TensorShape& shape, const std::byte* data, uint32_t row, float* out);

// 16 rows from `panel` of a kRaw tensor as a panel of floats, [k][16], rows past the last one 0. `row` is scratch of
// cols floats.
void ExpandRawPanel(const TensorShape& shape, const std::byte* data, uint32_t panel, float* row, float* out);

}  // namespace millrace::engine::cpu
