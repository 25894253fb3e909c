#include <grpcpp/generic/generic_stub.h>

#include "common/rpc/call.h"

namespace millrace::rpc {

std::shared_ptr<ClientCall> ClientCall::Start(std::shared_ptr<grpc::Channel> channel, const std::string& method,
                                              Executor& executor, std::shared_ptr<Receiver> receiver) {
  const std::shared_ptr<ClientCall> call(new ClientCall(executor));
  call->channel_ = std::move(channel);
  call->receiver_ = std::move(receiver);
  call->self_ = call;
  grpc::GenericStub stub(call->channel_);
  stub.PrepareBidiStreamingCall(&call->context_, method, grpc::StubOptions(), call.get());
  call->AddHold();
  {
    const std::lock_guard lock(call->mutex_);
    call->StartReadLocked();
  }
  call->StartCall();
  return call;
}

void ClientCall::StartReadLocked() {
  reading_ = true;
  StartRead(&incoming_);
}

void ClientCall::AdvanceLocked() {
  if (released_) return;
  if (TakeNextLocked()) StartWrite(&outgoing_);
  if (half_closing_ && !half_closed_ && !writing_ && !stop_writing_ && queue_.empty()) {
    half_closed_ = true;
    StartWritesDone();
  }
  // Nobody delivers what still comes, but only reading shows the end of the call.
  if (abandoned_ && !stop_reading_ && !reading_) StartReadLocked();
  if (stop_reading_ && !reading_) {
    released_ = true;
    RemoveHold();
  }
}

void ClientCall::CloseLocked(Status status) {
  if (!status.ok()) {
    FailLocked(std::move(status));
  } else if (!half_closing_ && !stop_writing_) {
    half_closing_ = true;
    stop_sending_ = true;
    AdvanceLocked();
  }
}

void ClientCall::FailLocked(Status status) {
  if (!local_end_.has_value()) local_end_ = std::move(status);
  CancelLocked();
}

bool ClientCall::LingersLocked() const { return half_closing_ && !local_end_.has_value() && !stop_reading_; }

void ClientCall::CancelLocked() {
  if (!local_end_.has_value()) local_end_ = Cancelled("the server did not end the stream in time");
  stop_writing_ = true;
  stop_reading_ = true;
  queue_.clear();
  if (!released_) context_.TryCancel();
  AdvanceLocked();
}

void ClientCall::OnReadDone(bool ok) {
  if (ok) {
    HandleMessage();
    return;
  }
  const std::lock_guard lock(mutex_);
  reading_ = false;
  stop_reading_ = true;
  stop_writing_ = true;
  queue_.clear();
  AdvanceLocked();
}

void ClientCall::OnDone(const grpc::Status& status) {
  std::shared_ptr<Call> self;  // outlives the lock
  const std::lock_guard lock(mutex_);
  self = std::move(self_);
  PostClosedLocked(local_end_.has_value() ? *local_end_ : FromGrpc(status));
}

}  // namespace millrace::rpc
