#include "common/rpc/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace millrace::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Fixed(std::string_view list) {
  const auto addresses = DnsAddresses::Create(list);
  EXPECT_TRUE(addresses.ok()) << addresses.status().ToString();
  return addresses.ok() ? (*addresses)->Addresses() : std::vector<std::string>{};
}

// Answers lookups as the test says; each lookup waits for its answer. Outlives the test while one waits.
class ScriptedResolver : public std::enable_shared_from_this<ScriptedResolver> {
 public:
  using Answer = StatusOr<std::vector<std::string>>;

  DnsOptions Options() {
    return {.refresh = Milliseconds(1),
            .resolve = [self = shared_from_this()](const std::string& host) { return self->Ask(host); }};
  }
  // Lets the next lookup of `host` end with `answer`.
  void Give(const std::string& host, Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_.emplace(host, std::move(answer));
    changed_.notify_all();
  }
  // Until the lookup that follows all answers given is waiting: what was given shows in Addresses() then.
  void AwaitAsked(const std::string& host) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_.empty() && waiting_ == host; });
  }

 private:
  Answer Ask(const std::string& host) {
    std::unique_lock lock(mutex_);
    waiting_ = host;
    changed_.notify_all();
    changed_.wait(lock, [&] { return answers_.contains(host); });
    waiting_.clear();
    const auto entry = answers_.find(host);
    Answer answer = std::move(entry->second);
    answers_.erase(entry);
    return answer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::string, Answer> answers_;  // guarded by mutex_
  std::string waiting_;                         // guarded by mutex_
};

TEST(DnsAddresses, IpsStayAsTheyAreSortedOnce) {
  EXPECT_THAT(Fixed("10.0.0.2:1, 10.0.0.1:2,[::1]:3,10.0.0.2:1"), ElementsAre("10.0.0.1:2", "10.0.0.2:1", "[::1]:3"));
  EXPECT_THAT(Fixed(""), IsEmpty());
  EXPECT_THAT(Fixed(" , "), IsEmpty());
}

TEST(DnsAddresses, MalformedEntriesAreNamed) {
  for (const char* bad : {"host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:1", "[::1:1", "[host]:1",
                          "a b:1", "[]:1", "[:1", "http://h:1"}) {
    const auto result = DnsAddresses::Create("10.0.0.1:1," + std::string(bad));
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr("'" + std::string(bad) + "'"));
  }
}

TEST(DnsAddresses, NamesAreResolvedAgainAndKeepTheirLastGoodAnswer) {
  const auto resolver = std::make_shared<ScriptedResolver>();
  const auto addresses = std::move(DnsAddresses::Create("pool:9,10.0.0.1:1", resolver->Options())).value();
  EXPECT_THAT(addresses->Addresses(), ElementsAre("10.0.0.1:1"));  // never blocks
  resolver->Give("pool", std::vector<std::string>{"10.0.0.3", "10.0.0.2", "fd00::1"});
  resolver->AwaitAsked("pool");
  EXPECT_THAT(addresses->Addresses(), ElementsAre("10.0.0.1:1", "10.0.0.2:9", "10.0.0.3:9", "[fd00::1]:9"));
  resolver->Give("pool", Unavailable("no answer"));
  resolver->AwaitAsked("pool");
  EXPECT_EQ(addresses->Addresses().size(), 4u);
  resolver->Give("pool", std::vector<std::string>{});
  resolver->AwaitAsked("pool");
  EXPECT_EQ(addresses->Addresses().size(), 4u);
  resolver->Give("pool", std::vector<std::string>{"10.0.0.4"});
  resolver->AwaitAsked("pool");
  EXPECT_THAT(addresses->Addresses(), ElementsAre("10.0.0.1:1", "10.0.0.4:9"));
  resolver->Give("pool", Unavailable("the end"));  // for the lookup that waits
}

TEST(DnsAddresses, DestructionDoesNotWaitForAResolverThatHangs) {
  struct Shared {
    std::promise<void> release, asked, ended;
  };
  const auto shared = std::make_shared<Shared>();
  const auto hang = [shared, calls = 0](const std::string&) mutable -> StatusOr<std::vector<std::string>> {
    if (++calls == 1) {
      shared->asked.set_value();
      shared->release.get_future().wait();
      shared->ended.set_value();
    }
    return Unavailable("late");
  };
  auto addresses = std::move(DnsAddresses::Create("pool:9", {.resolve = hang})).value();
  shared->asked.get_future().wait();
  addresses.reset();
  shared->release.set_value();
  shared->ended.get_future().wait();
}

TEST(DnsAddresses, SystemResolverKnowsLocalhost) {
  const auto addresses = std::move(DnsAddresses::Create("localhost:9", {.refresh = Milliseconds(1)})).value();
  while (addresses->Addresses().empty()) std::this_thread::yield();
  for (const std::string& address : addresses->Addresses()) {
    EXPECT_TRUE(address == "127.0.0.1:9" || address == "[::1]:9") << address;
  }
}

}  // namespace
}  // namespace millrace::rpc
