#include "common/rpc/call.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "common/peer/stream.h"
#include "common/rpc/codec.h"
#include "common/rpc/grpc_status.h"

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

// What client's and server's calls share: queue, flow and delivery. gRPC's threads only decode, post to the executor
// and start the next operation; the state they share with it is behind mutex_.
class CallCore : public Call, public std::enable_shared_from_this<CallCore> {
 public:
  void Send(std::string bytes) override;
  void Close(Status status) override;
  size_t pending_sends() const override;
  void Abandon() override;

 protected:
  explicit CallCore(Executor& executor) : executor_(executor) {}

  // All *Locked are called with mutex_ held.
  virtual void StartReadLocked() = 0;
  virtual void AdvanceLocked() = 0;  // starts whatever the state now asks for
  bool TakeNextLocked();             // takes the next message to outgoing_, if one may be written now
  void LingerLocked();               // cancels the call unless it ends soon
  virtual void CloseLocked(Status status) = 0;
  virtual void FailLocked(Status status) = 0;  // ends the call now, dropping what was queued
  virtual bool LingersLocked() const = 0;      // closed in order, with something still to do for the peer
  virtual void CancelLocked() = 0;             // lets the call end at once, if it has not

  // After a message was read, a write ended; on a gRPC thread.
  void HandleMessage();
  void WriteDone(bool ok);
  void PostClosedLocked(Status status);

  mutable std::mutex mutex_;
  Executor& executor_;                  // used only while !abandoned_
  std::shared_ptr<Receiver> receiver_;  // set before the first read; handlers inside belong to the executor

  // Guarded by mutex_.
  std::deque<grpc::ByteBuffer> queue_;
  bool reading_ = false;  // from StartRead until the message is decoded
  bool writing_ = false;
  bool stop_reading_ = false;  // deliver and read no more
  bool stop_sending_ = false;  // queue no more
  bool stop_writing_ = false;  // write no more
  bool abandoned_ = false;

  // Owned by gRPC while reading_ / writing_.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

 private:
  void DeliverOnExecutor();

  bool closed_posted_ = false;           // guarded by mutex_
  std::unique_ptr<grpc::Alarm> linger_;  // guarded by mutex_
};

void CallCore::Send(std::string bytes) {
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

void CallCore::Close(Status status) {
  const std::lock_guard lock(mutex_);
  CloseLocked(std::move(status));
}

size_t CallCore::pending_sends() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + (writing_ ? 1 : 0);
}

void CallCore::Abandon() {
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

void CallCore::LingerLocked() {
  if (linger_ != nullptr) return;
  linger_ = std::make_unique<grpc::Alarm>();
  linger_->Set(std::chrono::system_clock::now() + kLinger, [weak = weak_from_this()](bool expired) {
    const std::shared_ptr<CallCore> call = expired ? weak.lock() : nullptr;
    if (call == nullptr) return;
    const std::lock_guard lock(call->mutex_);
    call->CancelLocked();
  });
}

bool CallCore::TakeNextLocked() {
  if (writing_ || stop_writing_ || queue_.empty()) return false;
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  writing_ = true;
  return true;
}

void CallCore::HandleMessage() {
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

void CallCore::DeliverOnExecutor() {
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_ || stop_reading_) return;
  }
  receiver_->Deliver();
  const std::lock_guard lock(mutex_);
  if (abandoned_ || stop_reading_) return;
  StartReadLocked();
}

void CallCore::WriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_.Clear();
  if (!ok) {
    stop_writing_ = true;
    queue_.clear();
  }
  AdvanceLocked();
}

void CallCore::PostClosedLocked(Status status) {
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

// ---- client

class ClientCall final : public CallCore, private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static std::shared_ptr<ClientCall> Start(std::shared_ptr<grpc::Channel> channel, const std::string& method,
                                           Executor& executor, std::shared_ptr<Receiver> receiver);

 private:
  explicit ClientCall(Executor& executor) : CallCore(executor) {}

  void StartReadLocked() override;
  void AdvanceLocked() override;
  void CloseLocked(Status status) override;
  void FailLocked(Status status) override;
  bool LingersLocked() const override;
  void CancelLocked() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::shared_ptr<CallCore> self_;  // from Start to OnDone

  // Guarded by mutex_.
  std::optional<Status> local_end_;  // why this side ended the call
  bool half_closing_ = false;        // Close(OK): writes-done after the queue
  bool half_closed_ = false;
  bool released_ = false;  // the hold that lets operations start outside of reactions; none may after
};

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
  std::shared_ptr<CallCore> self;  // outlives the lock
  const std::lock_guard lock(mutex_);
  self = std::move(self_);
  PostClosedLocked(local_end_.has_value() ? *local_end_ : FromGrpc(status));
}

// ---- server

class ServerCall final : public CallCore, public grpc::ServerGenericBidiReactor {
 public:
  static ServerCall* Start(grpc::GenericCallbackServerContext& context, const AcceptCall& accept, Executor& executor,
                           std::function<void()> done);

 private:
  ServerCall(grpc::GenericCallbackServerContext& context, Executor& executor, std::function<void()> done)
      : CallCore(executor), context_(context), done_(std::move(done)) {}

  void AcceptOnExecutor(const AcceptCall& accept);

  void StartReadLocked() override;
  void AdvanceLocked() override;
  void CloseLocked(Status status) override;
  void FailLocked(Status status) override;
  bool LingersLocked() const override;
  void CancelLocked() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  grpc::GenericCallbackServerContext& context_;  // until OnDone
  std::function<void()> done_;
  std::shared_ptr<CallCore> self_;  // from Start to OnDone

  // Guarded by mutex_.
  std::optional<Status> end_;  // what the call ends or ended with
  bool finished_ = false;      // Finish was called; no operation may start after
  bool over_ = false;          // context_ is gone
};

ServerCall* ServerCall::Start(grpc::GenericCallbackServerContext& context, const AcceptCall& accept, Executor& executor,
                              std::function<void()> done) {
  const std::shared_ptr<ServerCall> call(new ServerCall(context, executor, std::move(done)));
  call->self_ = call;
  executor.Post([call, &accept] { call->AcceptOnExecutor(accept); });
  return call.get();
}

void ServerCall::AcceptOnExecutor(const AcceptCall& accept) {
  {
    const std::lock_guard lock(mutex_);
    if (end_.has_value()) return;  // gone before anyone saw it; `accept` may be too
  }
  std::shared_ptr<Receiver> receiver = accept(shared_from_this());
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;
  receiver_ = std::move(receiver);
  if (!stop_reading_) StartReadLocked();
}

void ServerCall::StartReadLocked() {
  reading_ = true;
  StartRead(&incoming_);
}

void ServerCall::AdvanceLocked() {
  if (finished_) return;
  if (TakeNextLocked()) StartWrite(&outgoing_);
  if (end_.has_value() && !writing_ && queue_.empty()) {
    finished_ = true;
    stop_writing_ = true;
    Finish(ToGrpc(*end_));
  }
}

void ServerCall::CloseLocked(Status status) {
  if (end_.has_value()) return;
  end_ = std::move(status);
  stop_reading_ = true;
  stop_sending_ = true;
  LingerLocked();
  AdvanceLocked();
}

void ServerCall::FailLocked(Status status) {
  if (!end_.has_value()) end_ = std::move(status);
  stop_reading_ = true;
  stop_writing_ = true;
  queue_.clear();
  if (writing_) CancelLocked();  // a peer that does not read would hold it up
  AdvanceLocked();
}

bool ServerCall::LingersLocked() const { return end_.has_value(); }

void ServerCall::CancelLocked() {
  if (!over_) context_.TryCancel();
}

void ServerCall::OnReadDone(bool ok) {
  if (ok) {
    HandleMessage();
    return;
  }
  const std::lock_guard lock(mutex_);
  reading_ = false;
  stop_reading_ = true;
  if (!context_.IsCancelled() && !end_.has_value()) PostClosedLocked(OkStatus());
}

void ServerCall::OnCancel() {
  const std::lock_guard lock(mutex_);
  if (!end_.has_value()) {
    end_ = Status(Code::kCancelled, Reason::kPeerLost, "the client cancelled the stream or its connection was lost");
  }
  stop_reading_ = true;
  stop_writing_ = true;
  queue_.clear();
  AdvanceLocked();
}

void ServerCall::OnDone() {
  std::shared_ptr<CallCore> self;  // outlives the lock
  {
    const std::lock_guard lock(mutex_);
    self = std::move(self_);
    over_ = true;
    PostClosedLocked(*end_);
  }
  done_();
}

}  // namespace

std::shared_ptr<Call> StartClientCall(std::shared_ptr<grpc::Channel> channel, const std::string& method,
                                      Executor& executor, std::shared_ptr<Receiver> receiver) {
  return ClientCall::Start(std::move(channel), method, executor, std::move(receiver));
}

ServerReactor* StartServerCall(grpc::GenericCallbackServerContext& context, const AcceptCall& accept,
                               Executor& executor, std::function<void()> done) {
  return ServerCall::Start(context, accept, executor, std::move(done));
}

}  // namespace millrace::rpc
