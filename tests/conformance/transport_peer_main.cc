// transport_peer NAME LANES DEVICES own-ipc|shared-ipc: a peer for transport tests. One command a line on stdin, one
// answer a line on stdout, "ok WORDS" or "CODE message". Ends with stdin.
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/transport_peer.h"

namespace millrace::transfer {
namespace {

// Reads one region again and again until it is stopped.
class Reader {
 public:
  Reader(std::unique_ptr<Link> link, RemoteRegion region, size_t size)
      : region_(region), buffer_(size), link_(std::move(link)) {
    Next();
  }
  uint64_t Stop() {
    stopping_ = true;
    link_.reset();
    return completed_;
  }

 private:
  void Next() {
    link_->Get(region_, 0, buffer_, [this](const Status& status) {
      if (!status.ok() || stopping_) return;
      ++completed_;
      Next();
    });
  }

  const RemoteRegion region_;
  std::vector<std::byte> buffer_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> completed_ = 0;
  std::unique_ptr<Link> link_;
};

class Commands {
 public:
  explicit Commands(LocalPeer& peer) : peer_(peer) {}

  StatusOr<std::string> Run(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "address") return ToHex(peer_.address());
    if (command == "region") return AddRegion(words);
    if (command == "drop") {
      uint32_t index = 0;
      words >> index;
      MR_RETURN_IF_ERROR(peer_.DropRegion(index));
      return std::string("dropped");
    }
    if (command == "read") return StartReading(words);
    if (command == "unread") {
      if (reader_ == nullptr) return FailedPrecondition("not reading");
      const std::string count = std::to_string(reader_->Stop());
      reader_.reset();
      return count;
    }
    return InvalidArgument("unknown command '" + command + "'");
  }

 private:
  StatusOr<std::string> AddRegion(std::istream& words) {
    size_t size = 0;
    uint64_t seed = 0;
    bool allocated = false;
    words >> size >> seed >> allocated;
    MR_ASSIGN_OR_RETURN(const PeerRegion region, peer_.AddRegion(size, seed, allocated));
    return std::to_string(region.index) + " " + ToHex(region.descriptor);
  }

  StatusOr<std::string> StartReading(std::istream& words) {
    std::string address;
    std::string descriptor;
    size_t size = 0;
    words >> address >> descriptor >> size;
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, peer_.transport().Connect(FromHex(address)));
    MR_ASSIGN_OR_RETURN(const RemoteRegion region, link->Import(FromHex(descriptor)));
    reader_ = std::make_unique<Reader>(std::move(link), region, size);
    return std::string("reading");
  }

  LocalPeer& peer_;
  std::unique_ptr<Reader> reader_;
};

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: transport_peer NAME LANES DEVICES own-ipc|shared-ipc\n");
    return 2;
  }
  if (std::string_view(argv[4]) == "own-ipc" && unshare(CLONE_NEWIPC) != 0) return 3;
  for (const TransportDescriptor* kind : All()) {
    if (kind->name != argv[1]) continue;
    StatusOr<std::unique_ptr<Transport>> transport = kind->make({.lanes = argv[2], .devices = argv[3]});
    if (!transport.ok()) {
      std::fprintf(stderr, "transport_peer: %s\n", transport.status().ToString().c_str());
      return 1;
    }
    LocalPeer peer(*kind, *std::move(transport));
    Commands commands(peer);
    std::string line;
    while (std::getline(std::cin, line)) {
      const StatusOr<std::string> answer = commands.Run(line);
      if (answer.ok()) {
        std::cout << "ok " << *answer << std::endl;
      } else {
        std::cout << static_cast<int>(answer.status().code()) << " " << answer.status().ToString() << std::endl;
      }
    }
    return 0;
  }
  std::fprintf(stderr, "transport_peer: no transport '%s'\n", argv[1]);
  return 2;
}

}  // namespace
}  // namespace millrace::transfer

int main(int argc, char** argv) { return millrace::transfer::Main(argc, argv); }
