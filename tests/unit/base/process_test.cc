#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/socket.h"

namespace sandbox {
namespace {

TEST(RunProgram, SeparatesOutputErrorAndStatus) {
  const auto result = run_program({"sh", "-c", "echo out; echo err >&2; exit 7"});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_EQ(result->exit_code, 7);
}

TEST(RunProgram, NamesAMissingProgram) {
  const auto result = run_program({"/no/such/program"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kNotFound);
  EXPECT_NE(result.error().message.find("/no/such/program"), std::string::npos);
}

TEST(RunProgram, StopsWhatPrintsTooMuch) {
  const auto result = run_program({"sh", "-c", "yes"}, 1000);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kLimit);
}

TEST(Spawn, GivesTheChildExactlyTheDescriptorsNamed) {
  auto extra = open_file("/dev/null", O_RDONLY);
  ASSERT_TRUE(extra);
  int out[2];
  ASSERT_EQ(::pipe(out), 0);  // deliberately inheritable
  const Fd read_end(out[0]);
  Fd write_end(out[1]);
  SpawnSpec spec;
  spec.argv = {"/bin/sh", "-c", "ls /proc/self/fd | tr '\\n' ' '"};
  spec.fds = {{write_end.get(), 1}, {extra->get(), 7}};
  auto child = spawn(spec);
  ASSERT_TRUE(child);
  write_end.reset();
  const auto listing = read_all(read_end.get(), 1000);
  ASSERT_TRUE(listing);
  // 3 is the descriptor with which ls reads the directory.
  EXPECT_EQ(*listing, "0 1 2 3 7 ");
  ::waitpid(child->pid, nullptr, 0);
}

TEST(Spawn, DescriptorsMayTradeNumbers) {
  auto first = memory_file("first", "first");
  auto second = memory_file("second", "second");
  ASSERT_TRUE(first && second);
  int out[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const Fd read_end(out[0]);
  Fd write_end(out[1]);
  SpawnSpec spec;
  spec.argv = {
      "/bin/sh", "-c",
      "cat <&" + std::to_string(first->get()) + "; cat <&" + std::to_string(second->get())};
  spec.fds = {{write_end.get(), 1}, {first->get(), second->get()}, {second->get(), first->get()}};
  auto child = spawn(spec);
  ASSERT_TRUE(child);
  write_end.reset();
  EXPECT_EQ(read_all(read_end.get(), 1000).value_or("?"), "secondfirst");
  ::waitpid(child->pid, nullptr, 0);
}

TEST(SendWithFds, CarriesDescriptorsAndBytes) {
  auto pair = socket_pair(SocketKind::kSeqPacket);
  auto file = memory_file("m", "hello");
  ASSERT_TRUE(pair && file);
  ASSERT_TRUE(send_with_fds(pair->first.get(), "name", {file->get()}));
  auto got = receive_with_fds(pair->second.get(), 100);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->bytes, "name");
  ASSERT_EQ(got->fds.size(), 1U);
  EXPECT_EQ(read_all(got->fds[0].get(), 100).value_or("?"), "hello");
}

TEST(ReceiveWithFds, RefusesAMessageLongerThanTheLimit) {
  auto pair = socket_pair(SocketKind::kSeqPacket);
  ASSERT_TRUE(pair);
  ASSERT_TRUE(send_with_fds(pair->first.get(), "0123456789", {}));
  EXPECT_FALSE(receive_with_fds(pair->second.get(), 4));
}

}  // namespace
}  // namespace sandbox
