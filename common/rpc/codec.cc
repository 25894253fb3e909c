#include "common/rpc/codec.h"

#include <google/protobuf/message.h>

#include <variant>

#include "common/rpc/wire.h"
#include "common/rpc/wire_fields.h"

namespace millrace::rpc {
namespace {

// One alternative of an envelope's oneof: number of the case, how to read it and how to set it.
template <class Domain, int kCase, auto kGet, auto kSet>
struct Arm {};

template <class Wire, class Message, class... Arms>
struct Envelope;

template <class Wire, class Message, class... Domains, int... kCases, auto... kGets, auto... kSets>
struct Envelope<Wire, Message, Arm<Domains, kCases, kGets, kSets>...> {
  static_assert(std::is_same_v<Message, std::variant<Domains...>>, "arms are the variant's alternatives, in order");

  static std::string Encode(const Message& message) {
    Wire wire;
    (PutIf<Domains, kSets>(message, wire), ...);
    return wire.SerializeAsString();
  }

  static StatusOr<Message> Decode(std::string_view bytes) {
    if (bytes.size() > kMaxMessageBytes) return BadField("message", "is too long");
    Wire wire;
    if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return BadField("message", "does not parse as " + Wire::descriptor()->full_name());
    }
    StatusOr<Message> result = BadField("message", "is not set or not known in " + Wire::descriptor()->full_name());
    (TakeIf<Domains, kCases, kGets>(wire, result), ...);
    return result;
  }

 private:
  template <class Domain, auto kSet>
  static void PutIf(const Message& message, Wire& wire) {
    if (const auto* value = std::get_if<Domain>(&message)) ToWire(*value, *(wire.*kSet)());
  }

  template <class Domain, int kCase, auto kGet>
  static void TakeIf(const Wire& wire, StatusOr<Message>& result) {
    if (static_cast<int>(wire.message_case()) != kCase) return;
    Domain value;
    Status status = FromWire((wire.*kGet)(), value);
    result = status.ok() ? StatusOr<Message>(Message(std::move(value))) : StatusOr<Message>(std::move(status));
  }
};

#define MR_ARM(Wire, Domain, Case, field) \
  Arm<peer::Domain, pb::Wire::Case, &pb::Wire::field, &pb::Wire::mutable_##field>

template <class Message>
struct EnvelopeOf;

template <>
struct EnvelopeOf<peer::ReportProtocol::Up>
    : Envelope<pb::ReportUp, peer::ReportProtocol::Up, MR_ARM(ReportUp, WorkerHello, kWorkerHello, worker_hello),
               MR_ARM(ReportUp, LoadReport, kLoadReport, load_report)> {};
template <>
struct EnvelopeOf<peer::ReportProtocol::Down>
    : Envelope<pb::ReportDown, peer::ReportProtocol::Down, MR_ARM(ReportDown, Heartbeat, kHeartbeat, heartbeat)> {};

template <>
struct EnvelopeOf<peer::PickProtocol::Up>
    : Envelope<pb::PickUp, peer::PickProtocol::Up, MR_ARM(PickUp, PickRequest, kPickRequest, pick_request)> {};
template <>
struct EnvelopeOf<peer::PickProtocol::Down>
    : Envelope<pb::PickDown, peer::PickProtocol::Down, MR_ARM(PickDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(PickDown, Route, kRoute, route)> {};

template <>
struct EnvelopeOf<peer::WatchProtocol::Up>
    : Envelope<pb::WatchUp, peer::WatchProtocol::Up, MR_ARM(WatchUp, WatchRequest, kWatchRequest, watch_request)> {};
template <>
struct EnvelopeOf<peer::WatchProtocol::Down>
    : Envelope<pb::WatchDown, peer::WatchProtocol::Down, MR_ARM(WatchDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(WatchDown, PoolState, kPoolState, pool_state)> {};

template <>
struct EnvelopeOf<peer::PrefillProtocol::Up>
    : Envelope<pb::PrefillUp, peer::PrefillProtocol::Up,
               MR_ARM(PrefillUp, PrefillRequest, kPrefillRequest, prefill_request)> {};
template <>
struct EnvelopeOf<peer::PrefillProtocol::Down>
    : Envelope<pb::PrefillDown, peer::PrefillProtocol::Down, MR_ARM(PrefillDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(PrefillDown, PrefillAccepted, kPrefillAccepted, prefill_accepted),
               MR_ARM(PrefillDown, DecodeTarget, kDecodeTarget, decode_target),
               MR_ARM(PrefillDown, FirstToken, kFirstToken, first_token)> {};

template <>
struct EnvelopeOf<peer::HandoffProtocol::Up>
    : Envelope<pb::HandoffUp, peer::HandoffProtocol::Up, MR_ARM(HandoffUp, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(HandoffUp, Reserve, kReserve, reserve),
               MR_ARM(HandoffUp, LayerBlocks, kLayerBlocks, layer_blocks),
               MR_ARM(HandoffUp, HandoffEnd, kHandoffEnd, handoff_end)> {};
template <>
struct EnvelopeOf<peer::HandoffProtocol::Down>
    : Envelope<pb::HandoffDown, peer::HandoffProtocol::Down, MR_ARM(HandoffDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(HandoffDown, Reserved, kReserved, reserved),
               MR_ARM(HandoffDown, HandoffComplete, kHandoffComplete, handoff_complete)> {};

template <>
struct EnvelopeOf<peer::DecodeProtocol::Up>
    : Envelope<pb::DecodeUp, peer::DecodeProtocol::Up, MR_ARM(DecodeUp, Attach, kAttach, attach)> {};
template <>
struct EnvelopeOf<peer::DecodeProtocol::Down>
    : Envelope<pb::DecodeDown, peer::DecodeProtocol::Down, MR_ARM(DecodeDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(DecodeDown, TokenChunk, kTokenChunk, token_chunk),
               MR_ARM(DecodeDown, DecodeFinished, kDecodeFinished, decode_finished)> {};

template <>
struct EnvelopeOf<peer::StoreProtocol::Up>
    : Envelope<pb::StoreUp, peer::StoreProtocol::Up, MR_ARM(StoreUp, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(StoreUp, StoreHello, kStoreHello, store_hello),
               MR_ARM(StoreUp, LookupBlocks, kLookupBlocks, lookup_blocks),
               MR_ARM(StoreUp, LoadBlocks, kLoadBlocks, load_blocks),
               MR_ARM(StoreUp, ReleaseLease, kReleaseLease, release_lease),
               MR_ARM(StoreUp, PutBlock, kPutBlock, put_block)> {};
template <>
struct EnvelopeOf<peer::StoreProtocol::Down>
    : Envelope<pb::StoreDown, peer::StoreProtocol::Down, MR_ARM(StoreDown, Heartbeat, kHeartbeat, heartbeat),
               MR_ARM(StoreDown, StoreWelcome, kStoreWelcome, store_welcome),
               MR_ARM(StoreDown, LookupDone, kLookupDone, lookup_done),
               MR_ARM(StoreDown, LoadDone, kLoadDone, load_done), MR_ARM(StoreDown, PutDone, kPutDone, put_done)> {};

#undef MR_ARM

}  // namespace

template <class Message>
std::string Encode(const Message& message) {
  return EnvelopeOf<Message>::Encode(message);
}

template <class Message>
StatusOr<Message> Decode(std::string_view bytes) {
  return EnvelopeOf<Message>::Decode(bytes);
}

#define MR_INSTANTIATE(Protocol)                                                      \
  template std::string Encode(const peer::Protocol::Up&);                             \
  template std::string Encode(const peer::Protocol::Down&);                           \
  template StatusOr<peer::Protocol::Up> Decode<peer::Protocol::Up>(std::string_view); \
  template StatusOr<peer::Protocol::Down> Decode<peer::Protocol::Down>(std::string_view)

MR_INSTANTIATE(DecodeProtocol);
MR_INSTANTIATE(HandoffProtocol);
MR_INSTANTIATE(PickProtocol);
MR_INSTANTIATE(PrefillProtocol);
MR_INSTANTIATE(ReportProtocol);
MR_INSTANTIATE(StoreProtocol);
MR_INSTANTIATE(WatchProtocol);

#undef MR_INSTANTIATE

}  // namespace millrace::rpc
