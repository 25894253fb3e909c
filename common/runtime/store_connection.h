#pragma once
// One worker's connection to one store, for StoreClient: stream, link, and the calls under way over both. Same threads
// and same promises about callbacks.
//
// A load may end only when no get of it can still write. So when the link is given up (deadline, silence, a closed
// stream) with gets outstanding, those loads end after the link was destroyed on `blocking`, and the next connection is
// made only then.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/peer/liveness.h"
#include "common/runtime/store_client.h"

namespace millrace::runtime {

struct StoreClientMetrics {
  explicit StoreClientMetrics(MetricRegistry& registry);
  Counter& Put(Reason reason);

  Gauge& connected;
  Gauge& calls;          // lookups, loads and puts under way
  Counter& lost;         // connections that ended after they were ready
  Counter& lookup_hits;  // blocks
  Counter& lookup_misses;
  Counter& loaded;        // blocks verified in place
  Counter& load_missing;  // blocks asked for and not given, or not in time
  Counter& load_corrupt;  // blocks whose checksum was wrong
  Counter& put_ok;
  Histogram& load_seconds;
  std::map<Reason, Counter*> put_failed;
};

class StoreConnection {
 public:
  StoreConnection(const StoreClientWiring& wiring, const StoreClientOptions& options, StoreClientMetrics& metrics,
                  std::string address);
  ~StoreConnection();

  void Lookup(StoreClient::LookupRequest request, std::function<void(uint32_t)> done);
  void LoadInto(StoreClient::LoadRequest request, std::function<void(uint32_t)> done);
  void Put(StoreClient::PutRequest request, std::function<void(Status)> done);

  void Tick();    // each heartbeat interval
  void Retire();  // ends the connection and makes no other
  bool ready() const { return state_ == State::kReady; }
  bool ended() const { return retired_ && !link_ending_ && loads_.empty(); }
  size_t calls() const { return lookups_.size() + loads_.size() + puts_.size(); }

 private:
  enum class State : uint8_t { kDown, kOpening, kReady };
  using CallId = uint64_t;  // also the tags of messages

  struct LookupCall {
    std::function<void(uint32_t)> done;
    uint32_t asked = 0;
    TimerId deadline = TimerId::kNone;
  };
  // Consecutive keys asked for in one LoadBlocks.
  struct Window {
    uint32_t first = 0;  // index of its first key
    uint32_t asked = 0;
    uint32_t gets = 0;  // outstanding or queued
    bool answered = false;
    bool checking = false;
    bool failed = false;  // a get failed
    uint64_t lease = 0;
    std::vector<peer::LoadedBlock> blocks;
  };
  struct LoadCall {
    StoreClient::LoadRequest request;
    std::function<void(uint32_t)> done;
    TimePoint started;
    TimerId deadline = TimerId::kNone;
    uint32_t next = 0;                      // first key not asked for yet
    uint32_t limit = 0;                     // keys from here on are given up
    std::map<CallId, Window> windows;       // by tag
    std::map<uint32_t, uint32_t> verified;  // by first key: how many from there on
  };
  struct PutCall {
    StoreClient::PutRequest request;
    std::function<void(Status)> done;
    TimerId deadline = TimerId::kNone;
    bool on_wire = false;
  };
  struct QueuedGet {
    CallId load = 0;
    CallId window = 0;
    uint64_t offset = 0;
    std::span<std::byte> into;
  };

  void Open();
  void Down(const Status& why);
  void EndLink();
  void OnLinkGone();
  void ScheduleOpen();
  void OnMessage(peer::StoreProtocol::Down message);
  void OnWelcome(const peer::StoreWelcome& welcome);
  void OnLookupDone(const peer::LookupDone& answer);
  void OnLoadDone(peer::LoadDone answer);
  void OnPutDone(const peer::PutDone& answer);

  void PumpLoad(CallId id);
  void PumpGets();
  void OnGet(CallId load, CallId window, const Status& status);
  void Check(CallId load, CallId window);
  void OnChecked(CallId load, CallId window, uint32_t intact, bool corrupt);
  void OnLoadDeadline(CallId id);
  void FinishLoad(CallId id);
  void FinishLookup(CallId id, uint32_t present);
  void PumpPuts();
  void FinishPut(CallId id, Status status);
  void Release(uint64_t lease);
  std::span<std::byte> Block(kv::BlockIndex block) const;
  Task Guarded(Task task) const;
  Status Away() const;

  const StoreClientWiring& wiring_;
  const StoreClientOptions& options_;
  StoreClientMetrics& metrics_;
  const std::string address_;

  State state_ = State::kDown;
  bool retired_ = false;
  std::unique_ptr<peer::ClientStream<peer::StoreProtocol>> stream_;
  std::optional<peer::LivenessMonitor> liveness_;
  std::shared_ptr<transfer::Link> link_;  // only here and in the task that ends it
  transfer::RemoteRegion region_{};
  bool link_ending_ = false;
  uint32_t max_load_blocks_ = 0;
  Duration backoff_;
  TimePoint next_open_{};
  TimerId open_timer_ = TimerId::kNone;

  CallId next_id_ = 1;
  std::map<CallId, LookupCall> lookups_;
  std::map<CallId, LoadCall> loads_;
  std::map<CallId, CallId> load_of_window_;
  std::map<CallId, PutCall> puts_;
  std::deque<CallId> put_queue_;
  uint32_t puts_on_wire_ = 0;
  std::deque<QueuedGet> get_queue_;
  uint32_t gets_on_wire_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace millrace::runtime
