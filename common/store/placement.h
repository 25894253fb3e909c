#pragma once
// Which store keeps a chain of blocks: rendezvous hashing, so that adding or losing one of n stores moves 1/n of the
// chains. The same answer in every process and on every machine.

#include <cstddef>
#include <span>
#include <string>

#include "common/kv/block_key.h"

namespace millrace::store {

// Index into `addresses` (at least one; order does not matter to the choice).
size_t PickStore(const kv::BlockKey& chain, std::span<const std::string> addresses);

}  // namespace millrace::store
