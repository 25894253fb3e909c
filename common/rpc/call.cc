#include "common/rpc/call.h"

#include <grpcpp/support/slice.h>

#include <chrono>
#include <utility>

#include "common/peer/stream.h"
#include "common/rpc/codec.h"

namespace millrace::rpc {
namespace {

// How long a call whose stream was closed in order and destroyed may take to hand over what was sent before.
constexpr std::chrono::seconds kLinger{10};

Status DecodeBuffer(const grpc::ByteBuffer& buffer, Receiver& receiver) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok()) {
    if (const grpc::Status dumped = buffer.DumpToSingleSlice(&slice); !dumped.ok()) return FromGrpc(dumped);
  }
  return receiver.Decode({reinterpret_cast<const char*>(slice.begin()), slice.size()});
}

}  // namespace

void Call::Send(std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (stop_sending_ || stop_writing_) return;
  if (bytes.size() > kMaxMessageBytes) {
    FailLocked({Code::kResourceExhausted, "a message of " + std::to_string(bytes.size()) +
                                              " bytes is over the limit of " + std::to_string(kMaxMessageBytes)});
    return;
  }
  if (queue_.size() >= peer::kMaxPendingSends) {
    FailLocked({Code::kResourceExhausted, Reason::kOverloaded,
                "the peer does not read: " + std::to_string(queue_.size()) + " messages wait to be sent"});
    return;
  }
  const grpc::Slice slice(bytes);
  queue_.emplace_back(&slice, 1);
  AdvanceLocked();
}

void Call::Close(Status status) {
  const std::lock_guard lock(mutex_);
  CloseLocked(std::move(status));
}

size_t Call::pending_sends() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + (writing_ ? 1 : 0);
}

void Call::Abandon() {
  std::shared_ptr<Receiver> receiver;
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    receiver = receiver_;
    if (LingersLocked()) {
      LingerLocked();
      AdvanceLocked();
    } else {
      FailLocked(Cancelled("the stream was dropped"));
    }
  }
  if (receiver != nullptr) receiver->Forget();
}

void Call::LingerLocked() {
  if (linger_ != nullptr) return;
  linger_ = std::make_unique<grpc::Alarm>();
  linger_->Set(std::chrono::system_clock::now() + kLinger, [weak = weak_from_this()](bool expired) {
    const std::shared_ptr<Call> call = expired ? weak.lock() : nullptr;
    if (call == nullptr) return;
    const std::lock_guard lock(call->mutex_);
    call->CancelLocked();
  });
}

bool Call::TakeNextLocked() {
  if (writing_ || stop_writing_ || queue_.empty()) return false;
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  writing_ = true;
  return true;
}

void Call::HandleMessage() {
  Status decoded = DecodeBuffer(incoming_, *receiver_);
  incoming_.Clear();
  const std::lock_guard lock(mutex_);
  reading_ = false;
  if (abandoned_ || stop_reading_) {
    AdvanceLocked();
  } else if (!decoded.ok()) {
    FailLocked(std::move(decoded));
  } else {
    executor_.Post([self = shared_from_this()] { self->DeliverOnExecutor(); });
  }
}

void Call::DeliverOnExecutor() {
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_ || stop_reading_) return;
  }
  receiver_->Deliver();
  const std::lock_guard lock(mutex_);
  if (abandoned_ || stop_reading_) return;
  StartReadLocked();
}

void Call::WriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_.Clear();
  if (!ok) {
    stop_writing_ = true;
    queue_.clear();
  }
  AdvanceLocked();
}

void Call::PostClosedLocked(Status status) {
  if (abandoned_ || closed_posted_) return;
  closed_posted_ = true;
  executor_.Post([self = shared_from_this(), status = std::move(status)]() mutable {
    {
      const std::lock_guard lock(self->mutex_);
      if (self->abandoned_ || self->receiver_ == nullptr) return;
    }
    self->receiver_->Closed(std::move(status));
  });
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = static_cast<int>(status.error_code());
  if (!status.error_details().empty()) return DecodeStatus(code, status.error_message(), status.error_details());
  switch (status.error_code()) {
    // What gRPC itself reports when a connection fails, is reset in the middle of a call, or the server goes away.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::CANCELLED:
      return {Code::kUnavailable, Reason::kPeerLost, "lost the peer: " + status.error_message()};
    default:
      return DecodeStatus(code, status.error_message(), "");
  }
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), WireMessage(status), EncodeStatusDetails(status)};
}

}  // namespace millrace::rpc
