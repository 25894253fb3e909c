#pragma once
// Wire form of the messages of common/peer/protocols.h and of the Status that ends a stream. Bytes in, values out: no
// type of an RPC or serialization library shows. Whatever the bytes, decoding returns a Status or a value whose
// documented invariants hold; it never dies. Pure functions.

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/peer/protocols.h"

namespace millrace::rpc {

// What is refused from a peer; the largest message is below any of these in memory.
constexpr size_t kMaxMessageBytes = size_t{64} << 20;
constexpr size_t kMaxTextBytes = 4096;            // ids, names, addresses, digests, salts
constexpr size_t kMaxDescriptorBytes = 64 << 10;  // transport addresses and region descriptors
constexpr size_t kMaxTokens = 4 << 20;            // token ids of one request
constexpr size_t kMaxStopIds = 64 << 10;
constexpr size_t kMaxLogitBias = 256 << 10;
constexpr size_t kMaxIncarnations = 64 << 10;
constexpr size_t kMaxModels = 4096;
constexpr size_t kMaxBlockKeys = 128 << 10;      // of one lookup or load
constexpr size_t kMaxLayerBlocks = 1 << 20;      // announced in one message
constexpr size_t kMaxStatusMessageBytes = 1024;  // longer ones are cut when sent

// `Message` is the Up or Down variant of a protocol.
template <class Message>
std::string Encode(const Message& message);

// kInvalidArgument names the field: bytes that are no such message, no alternative set, a value of an enum that is not
// known, a list or text over its limit, a key that is not 16 bytes, a number that is not finite, a Generation that
// breaks its own rules.
template <class Message>
StatusOr<Message> Decode(std::string_view bytes);

// The part of a Status that gRPC's code and message do not carry (grpc-status-details-bin).
std::string EncodeStatusDetails(const Status& status);
// `status.message()` as it may travel: valid UTF-8, at most kMaxStatusMessageBytes.
std::string WireMessage(const Status& status);
// The Status a peer closed with. Details that do not parse are ignored; codes and reasons not known here become
// kUnknown and kNone.
Status DecodeStatus(int code, std::string_view message, std::string_view details);

}  // namespace millrace::rpc
