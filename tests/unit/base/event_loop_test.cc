#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/socket.h"

namespace sandbox {
namespace {

TEST(EventLoop, RunsTimersInOrderAndHonoursCancel) {
  auto loop = EventLoop::create();
  ASSERT_TRUE(loop);
  std::vector<int> order;
  (*loop)->after(2ms, [&] {
    order.push_back(2);
    (*loop)->stop();
  });
  (*loop)->after(1ms, [&] { order.push_back(1); });
  const auto cancelled = (*loop)->after(1ms, [&] { order.push_back(9); });
  (*loop)->cancel(cancelled);
  (*loop)->run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoop, AHandlerRemovedInTheSameRoundIsNotCalled) {
  auto loop = EventLoop::create();
  auto one = socket_pair(SocketKind::kStream);
  auto two = socket_pair(SocketKind::kStream);
  ASSERT_TRUE(loop && one && two);
  int calls = 0;
  const auto handler_for = [&](int other) {
    return [&, other](uint32_t) {
      ++calls;
      (*loop)->remove(other);
      (*loop)->stop();
    };
  };
  ASSERT_TRUE((*loop)->add(one->first.get(), EventLoop::kRead, handler_for(two->first.get())));
  ASSERT_TRUE((*loop)->add(two->first.get(), EventLoop::kRead, handler_for(one->first.get())));
  ASSERT_TRUE(write_all(one->second.get(), "x"));
  ASSERT_TRUE(write_all(two->second.get(), "x"));
  (*loop)->run();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, ReportsHangupWithoutInterest) {
  auto loop = EventLoop::create();
  auto pair = socket_pair(SocketKind::kStream);
  ASSERT_TRUE(loop && pair);
  uint32_t seen = 0;
  ASSERT_TRUE((*loop)->add(pair->first.get(), 0, [&](uint32_t ready) {
    seen = ready;
    (*loop)->stop();
  }));
  pair->second.reset();
  (*loop)->run();
  EXPECT_TRUE(seen & EventLoop::kHangup);
}

}  // namespace
}  // namespace sandbox
