#include "common/engine/cpu/packing.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace millrace::engine::cpu {
namespace {

using model::TensorType;

constexpr uint64_t kMostBytes = uint64_t{1} << 40;

struct IntegerLayout {
  uint32_t code_bytes;   // of 16 rows of a block
  uint32_t scale_count;  // f16 values a row of a block: scale, minimum
};

bool IsInteger(Packing packing) { return packing <= Packing::kU8Zero128; }

IntegerLayout LayoutOf(Packing packing) {
  return {packing == Packing::kU8Zero128 ? 512u : 256u, packing == Packing::kU4Min ? 2u : 1u};
}

uint64_t PanelBytes(Packing packing, uint64_t cols) {
  uint64_t bytes = cols * kPanelRows * (packing == Packing::kF32 ? 4 : 2);
  if (IsInteger(packing)) {
    const IntegerLayout layout = LayoutOf(packing);
    bytes = cols / kQuantBlock * (layout.code_bytes + layout.scale_count * kPanelRows * 2);
  }
  return (bytes + 63) / 64 * 64;
}

// Packing of the types that have panels of their own.
bool PanelPacking(TensorType type, Packing* packing) {
  switch (type) {
    case TensorType::kQ4_0:
      *packing = Packing::kU4Zero8;
      return true;
    case TensorType::kQ4_1:
      *packing = Packing::kU4Min;
      return true;
    case TensorType::kQ8_0:
      *packing = Packing::kU8Zero128;
      return true;
    case TensorType::kF16:
      *packing = Packing::kF16;
      return true;
    case TensorType::kBF16:
      *packing = Packing::kBF16;
      return true;
    case TensorType::kF32:
      *packing = Packing::kF32;
      return true;
    default:
      return false;
  }
}

// One row of blocks {f16 scale, f16 minimum?, codes} into lane `lane` of a panel.
void PackIntegerRow(const TensorShape& shape, const std::byte* row, uint32_t lane, std::byte* panel) {
  const IntegerLayout layout = LayoutOf(shape.packing);
  const uint32_t blocks = shape.cols / kQuantBlock, row_codes = layout.code_bytes / kPanelRows;
  const auto flip = static_cast<uint8_t>(shape.packing == Packing::kU8Zero128 ? 0x80 : 0);
  std::byte* scales = panel + size_t{blocks} * layout.code_bytes;
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t s = 0; s < layout.scale_count; ++s) {
      std::memcpy(scales + (size_t{s} * blocks + block) * 32 + lane * 2, row, 2);
      row += 2;
    }
    std::byte* codes = panel + size_t{block} * layout.code_bytes;
    for (uint32_t k = 0; k < row_codes; ++k) {
      codes[k / 4 * 64 + lane * 4 + k % 4] = row[k] ^ static_cast<std::byte>(flip);
    }
    row += row_codes;
  }
}

// The inverse, for blocks [first, end): part of a row of the file from its lane.
void UnpackIntegerBlocks(const TensorShape& shape, const std::byte* panel, uint32_t lane, uint32_t first, uint32_t end,
                         std::byte* row) {
  const IntegerLayout layout = LayoutOf(shape.packing);
  const uint32_t blocks = shape.cols / kQuantBlock, row_codes = layout.code_bytes / kPanelRows;
  const auto flip = static_cast<uint8_t>(shape.packing == Packing::kU8Zero128 ? 0x80 : 0);
  const std::byte* scales = panel + size_t{blocks} * layout.code_bytes;
  for (uint32_t block = first; block < end; ++block) {
    for (uint32_t s = 0; s < layout.scale_count; ++s) {
      std::memcpy(row, scales + (size_t{s} * blocks + block) * 32 + lane * 2, 2);
      row += 2;
    }
    const std::byte* codes = panel + size_t{block} * layout.code_bytes;
    for (uint32_t k = 0; k < row_codes; ++k) {
      row[k] = codes[k / 4 * 64 + lane * 4 + k % 4] ^ static_cast<std::byte>(flip);
    }
    row += row_codes;
  }
}

}  // namespace

uint64_t TensorShape::bytes() const {
  switch (storage) {
    case Storage::kPanels:
      return panels() * part_bytes;
    case Storage::kRaw:
      return rows * part_bytes;
    case Storage::kVector:
      return part_bytes;
  }
  return 0;
}

StatusOr<TensorShape> ShapeFor(const model::Tensor& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0 || tensor.rows > INT32_MAX || tensor.cols > INT32_MAX ||
      tensor.bytes() > kMostBytes) {
    return InvalidArgument("tensor " + tensor.name + ": " + std::to_string(tensor.rows) + " x " +
                           std::to_string(tensor.cols) + " is not a size that we can hold");
  }
  TensorShape shape;
  shape.type = tensor.type;
  shape.rows = static_cast<uint32_t>(tensor.rows);
  shape.cols = static_cast<uint32_t>(tensor.cols);
  if (shape.rows == 1) {
    shape.part_bytes = (uint64_t{shape.cols} + 15) / 16 * 16 * sizeof(float);
  } else if (PanelPacking(tensor.type, &shape.packing)) {
    shape.storage = Storage::kPanels;
    shape.part_bytes = PanelBytes(shape.packing, shape.cols);
  } else {
    shape.storage = Storage::kRaw;
    shape.part_bytes = tensor.row_bytes();
  }
  return shape;
}

void PackRows(const TensorShape& shape, std::span<const std::byte> rows, uint32_t first_row, uint32_t count,
              std::byte* out) {
  if (shape.storage == Storage::kRaw) {
    std::memcpy(out + first_row * shape.part_bytes, rows.data(), rows.size());
    return;
  }
  if (shape.storage == Storage::kVector) {
    model::DequantizeRow(shape.type, rows.data(), shape.cols, reinterpret_cast<float*>(out));
    return;
  }
  const size_t row_bytes = rows.size() / count, element = shape.packing == Packing::kF32 ? 4 : 2;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t lane = (first_row + i) % kPanelRows;
    std::byte* panel = out + (first_row + i) / kPanelRows * shape.part_bytes;
    const std::byte* row = rows.data() + i * row_bytes;
    if (IsInteger(shape.packing)) {
      PackIntegerRow(shape, row, lane, panel);
      continue;
    }
    for (uint32_t k = 0; k < shape.cols; ++k) {
      std::memcpy(panel + (size_t{k} * kPanelRows + lane) * element, row + k * element, element);
    }
  }
}

void UnpackRow(const TensorShape& shape, const std::byte* data, uint32_t row, float* out) {
  if (shape.storage == Storage::kRaw) {
    model::DequantizeRow(shape.type, data + row * shape.part_bytes, shape.cols, out);
    return;
  }
  if (shape.storage == Storage::kVector) {
    std::memcpy(out, data, shape.cols * sizeof(float));
    return;
  }
  const std::byte* panel = data + row / kPanelRows * shape.part_bytes;
  const uint32_t lane = row % kPanelRows;
  // Pieces of one row of the file, each a whole number of blocks.
  constexpr uint32_t kPieceCols = 64 * kQuantBlock;
  std::byte piece[kPieceCols * sizeof(float)];
  const size_t element = shape.packing == Packing::kF32 ? 4 : 2;
  for (uint32_t first = 0; first < shape.cols; first += kPieceCols) {
    const uint32_t count = std::min(shape.cols - first, kPieceCols);
    if (IsInteger(shape.packing)) {
      UnpackIntegerBlocks(shape, panel, lane, first / kQuantBlock, (first + count) / kQuantBlock, piece);
    } else {
      for (uint32_t k = 0; k < count; ++k) {
        std::memcpy(piece + k * element, panel + (size_t{first + k} * kPanelRows + lane) * element, element);
      }
    }
    model::DequantizeRow(shape.type, piece, count, out + first);
  }
}

void ExpandRawPanel(const TensorShape& shape, const std::byte* data, uint32_t panel, float* row, float* out) {
  for (uint32_t lane = 0; lane < kPanelRows; ++lane) {
    const uint32_t index = panel * kPanelRows + lane;
    if (index < shape.rows) {
      model::DequantizeRow(shape.type, data + index * shape.part_bytes, shape.cols, row);
    } else {
      std::fill_n(row, shape.cols, 0.0f);
    }
    for (uint32_t k = 0; k < shape.cols; ++k) out[size_t{k} * kPanelRows + lane] = row[k];
  }
}

}  // namespace millrace::engine::cpu
