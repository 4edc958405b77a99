// A resolver that knows everything: each question has the same address as its answer.
//
//   dns_answers ADDRESS PORT ANSWER     prints "ready", then answers over UDP until it is killed
//
// The answer is the question with the flags of a reply and one A record whose name points to the
// question (RFC 1035, 4.1).

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kHeader = 12;

// The end of the question, or 0 when this is not one question.
size_t end_of_question(const unsigned char* message, size_t size) {
  if (size < kHeader || message[4] != 0 || message[5] != 1) return 0;
  size_t at = kHeader;
  while (at < size && message[at] != 0) at += size_t{1} + message[at];
  at += 1 + 4;  // the root label, type and class
  return at <= size ? at : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: dns_answers ADDRESS PORT ANSWER\n", stderr);
    return 2;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[2])));
  in_addr answer{};
  if (::inet_pton(AF_INET, argv[1], &address.sin_addr) != 1 ||
      ::inet_pton(AF_INET, argv[3], &answer) != 1) {
    std::fputs("dns_answers: not an IPv4 address\n", stderr);
    return 2;
  }
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    std::perror("dns_answers: bind");
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  // A pointer to the question's name, type A, class IN, 300 s, four bytes.
  constexpr std::array<unsigned char, 12> kRecord = {0xC0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4};
  std::array<unsigned char, 2048> message;
  for (;;) {
    sockaddr_in peer{};
    socklen_t peer_size = sizeof peer;
    const ssize_t n =
        ::recvfrom(socket, message.data(), 1024, 0, reinterpret_cast<sockaddr*>(&peer), &peer_size);
    const size_t end = n > 0 ? end_of_question(message.data(), static_cast<size_t>(n)) : 0;
    if (end == 0) continue;
    message[2] = static_cast<unsigned char>(0x84 | (message[2] & 1));  // an authoritative reply
    message[3] = 0x80;
    message[7] = 1;                                           // one answer
    message[8] = message[9] = message[10] = message[11] = 0;  // and nothing else
    std::memcpy(message.data() + end, kRecord.data(), kRecord.size());
    std::memcpy(message.data() + end + kRecord.size(), &answer, sizeof answer);
    (void)::sendto(socket, message.data(), end + kRecord.size() + sizeof answer, 0,
                   reinterpret_cast<const sockaddr*>(&peer), peer_size);
  }
}
