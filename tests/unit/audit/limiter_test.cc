#include "audit/limiter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace sandbox::audit {
namespace {

Record dns(const std::string& name, Outcome verdict = Outcome::kDeny) {
  Record record;
  record.proto = "dns";
  record.verdict = verdict;
  record.reason = verdict == Outcome::kDeny ? "no-allow-rule" : "allow-rule";
  record.names = {name};
  return record;
}

Record dial(const std::string& address, uint16_t port, Outcome verdict = Outcome::kDeny) {
  Record record;
  record.proto = "tcp";
  record.verdict = verdict;
  record.reason = verdict == Outcome::kDeny ? "unresolved-address" : "allow-rule";
  record.address = *IpAddress::parse(address);
  record.port = port;
  return record;
}

class LimiterTest : public ::testing::Test {
 protected:
  std::vector<Record> offer(const Record& record) {
    std::vector<Record> out;
    limiter_.offer(record, now_, out);
    return out;
  }
  std::vector<Record> expire() {
    std::vector<Record> out;
    limiter_.expire(now_, out);
    return out;
  }
  std::vector<Record> finish() {
    std::vector<Record> out;
    limiter_.finish(out);
    return out;
  }

  Limiter limiter_;
  Instant now_{std::chrono::hours(1)};
};

TEST_F(LimiterTest, TheFirstDenialPassesAtOnce) {
  const auto out = offer(dns("evil.net"));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0], dns("evil.net"));
}

TEST_F(LimiterTest, EqualDenialsWithinTenSecondsBecomeOneWithACount) {
  offer(dns("evil.net"));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(offer(dns("evil.net")).empty());
  now_ = now_ + 9999ms;
  EXPECT_TRUE(expire().empty());
  now_ = now_ + 1ms;
  const auto out = expire();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].count, 5U);
  EXPECT_EQ(out[0].names, std::vector<std::string>{"evil.net"});
  EXPECT_EQ(offer(dns("evil.net")).size(), 1U) << "a new window opens with a record of its own";
}

TEST_F(LimiterTest, ASingleDenialLeavesNoSecondRecord) {
  offer(dns("evil.net"));
  now_ = now_ + 11s;
  EXPECT_TRUE(expire().empty());
  EXPECT_EQ(limiter_.next_deadline(), Instant::never());
}

TEST_F(LimiterTest, DenialsThatDifferAreNotMerged) {
  EXPECT_EQ(offer(dial("192.0.2.1", 80)).size(), 1U);
  EXPECT_EQ(offer(dial("192.0.2.1", 81)).size(), 1U) << "another port";
  EXPECT_EQ(offer(dial("192.0.2.2", 80)).size(), 1U) << "another address";
  Record quic = dial("192.0.2.1", 80);
  quic.reason = "quic";
  EXPECT_EQ(offer(quic).size(), 1U) << "another reason";
  quic.proto = "udp";
  EXPECT_EQ(offer(quic).size(), 1U) << "another protocol";
}

TEST_F(LimiterTest, AllowsAreNotMerged) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(offer(dial("192.0.2.1", 443, Outcome::kAllow)).size(), 1U);
}

TEST_F(LimiterTest, BeyondFiveHundredInASecondThereAreSummaries) {
  for (size_t i = 0; i < Limiter::kPerSecond; ++i)
    EXPECT_EQ(offer(dial("192.0.2.1", 443, Outcome::kAllow)).size(), 1U);
  for (int i = 0; i < 1000; ++i)
    EXPECT_TRUE(offer(dial("192.0.2.1", 443, Outcome::kAllow)).empty());
  EXPECT_EQ(limiter_.next_deadline(), now_ + 1s);
  now_ = now_ + 1s;
  const auto out = expire();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].kind, Kind::kSummary);
  EXPECT_EQ(out[0].count, 1000U);
  EXPECT_EQ(out[0].reason, "allow-rule");
  EXPECT_TRUE(out[0].destinations.empty()) << "the destination had been recorded";
  EXPECT_EQ(offer(dial("192.0.2.1", 443, Outcome::kAllow)).size(), 1U) << "the next second is new";
}

TEST_F(LimiterTest, SummariesAddUpTheTrafficOfClosedFlows) {
  Record closed = dial("192.0.2.1", 443, Outcome::kNone);
  closed.kind = Kind::kClose;
  closed.traffic = Traffic{10, 100};
  for (size_t i = 0; i < Limiter::kPerSecond + 3; ++i) (void)offer(closed);
  now_ = now_ + 1s;
  const auto out = expire();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].traffic, (Traffic{30, 300}));
}

// Whatever the flood, each destination can be found in the record.
TEST_F(LimiterTest, FirstContactIsNeverDropped) {
  std::set<std::string> found;
  const auto collect = [&](const std::vector<Record>& out) {
    for (const Record& record : out) {
      if (record.kind == Kind::kDecision) found.insert(record.names.front());
      found.insert(record.destinations.begin(), record.destinations.end());
      EXPECT_LE(record.destinations.size(), Limiter::kMaxListed);
      EXPECT_LE(to_json(record).size(), kMaxRecordBytes);
    }
  };
  constexpr int kNames = 20000;
  for (int i = 0; i < kNames; ++i) {
    collect(offer(dns(fmt::format("{}.example.net", i))));
    now_ = now_ + 10us;
  }
  collect(finish());
  EXPECT_EQ(found.size(), static_cast<size_t>(kNames));
}

// Nothing that was offered goes uncounted.
TEST_F(LimiterTest, CountsAddUp) {
  uint64_t counted = 0;
  uint64_t offered = 0;
  const auto add = [&](const std::vector<Record>& out) {
    for (const Record& record : out) counted += record.count;
  };
  for (int i = 0; i < 30000; ++i) {
    add(offer(i % 3 == 0 ? dns(fmt::format("{}.example.net", i % 700))
                         : dial(fmt::format("192.0.2.{}", i % 250), 443,
                                i % 2 == 0 ? Outcome::kAllow : Outcome::kDeny)));
    ++offered;
    now_ = now_ + 1ms * (i % 5 == 0 ? 7 : 0);
    if (i % 100 == 0) add(expire());
  }
  add(finish());
  EXPECT_EQ(counted, offered);
}

TEST_F(LimiterTest, OpenWindowsAreBoundedAndCloseEarly) {
  offer(dns("first.example.net"));
  offer(dns("first.example.net"));
  std::vector<Record> out;
  for (size_t i = 0; i < Limiter::kMaxOpen; ++i) {
    limiter_.offer(dns(fmt::format("{}.example.net", i)), now_, out);
    now_ = now_ + 2ms;  // below the rate at which summaries begin
  }
  bool closed = false;
  for (const Record& record : out)
    closed = closed || record.names == std::vector<std::string>{"first.example.net"};
  EXPECT_TRUE(closed);
}

TEST_F(LimiterTest, FinishGivesEverythingThatWaits) {
  offer(dns("a.example.net"));
  offer(dns("a.example.net"));
  offer(dns("a.example.net"));
  const auto out = finish();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].count, 2U);
  EXPECT_TRUE(finish().empty());
}

}  // namespace
}  // namespace sandbox::audit
