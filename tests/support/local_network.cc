#include "tests/support/local_network.h"

#include <algorithm>
#include <vector>

namespace millrace::support {
namespace {

std::pair<std::string, std::string> Pair(const std::string& a, const std::string& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

}  // namespace

Status LocalPeerLost(const std::string& address) {
  return {Code::kUnavailable, Reason::kPeerLost, "connection to '" + address + "' failed or was lost"};
}

bool LocalNetworkState::StalledLocked(const LocalConnection& connection) const {
  return stalled.contains(connection.client) || stalled.contains(connection.server) ||
         stalled_pairs.contains(Pair(connection.client, connection.server));
}

void LocalNetwork::AddService(const std::string& address, const char* protocol, LocalService service) {
  std::lock_guard lock(state_->mutex);
  state_->services[{address, protocol}] = service;
}

void LocalNetwork::Kill(const std::string& address) {
  const auto connections = Connections();  // released outside the lock
  std::lock_guard lock(state_->mutex);
  std::erase_if(state_->services, [&](const auto& entry) { return entry.first.first == address; });
  state_->stalled.erase(address);
  for (const auto& connection : connections) {
    if (connection->client == address || connection->server == address) {
      connection->LoseLocked(LocalPeerLost(address));
    }
  }
}

void LocalNetwork::Stall(const std::string& address) {
  std::lock_guard lock(state_->mutex);
  state_->stalled.insert(address);
}

void LocalNetwork::Resume(const std::string& address) {
  const auto connections = Connections();
  std::lock_guard lock(state_->mutex);
  state_->stalled.erase(address);
  for (const auto& connection : connections) connection->KickLocked();
}

void LocalNetwork::StallBetween(const std::string& a, const std::string& b) {
  std::lock_guard lock(state_->mutex);
  state_->stalled_pairs.insert(Pair(a, b));
}

void LocalNetwork::ResumeBetween(const std::string& a, const std::string& b) {
  const auto connections = Connections();
  std::lock_guard lock(state_->mutex);
  state_->stalled_pairs.erase(Pair(a, b));
  for (const auto& connection : connections) connection->KickLocked();
}

void LocalNetwork::RefuseConnects(const std::string& address) {
  std::lock_guard lock(state_->mutex);
  state_->refused.insert(address);
}

void LocalNetwork::AllowConnects(const std::string& address) {
  std::lock_guard lock(state_->mutex);
  state_->refused.erase(address);
}

size_t LocalNetwork::open_streams(const std::string& address) const {
  const auto connections = Connections();
  std::lock_guard lock(state_->mutex);
  return static_cast<size_t>(std::count_if(connections.begin(), connections.end(), [&](const auto& connection) {
    return connection->open() && (connection->client == address || connection->server == address);
  }));
}

std::vector<std::shared_ptr<LocalConnection>> LocalNetwork::Connections() const {
  std::vector<std::shared_ptr<LocalConnection>> connections;
  std::lock_guard lock(state_->mutex);
  for (const auto& weak : state_->connections) {
    if (auto connection = weak.lock()) connections.push_back(std::move(connection));
  }
  return connections;
}

}  // namespace millrace::support
