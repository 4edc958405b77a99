// musl_get HOST: GET /page on port 80. Linked statically with musl, whose resolver treats errors differently from glibc's.
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  if (count != 2) return 64;
  int error = getaddrinfo(words[1], "80", &hints, &found);
  if (error != 0) return fprintf(stderr, "%s: %s\n", words[1], gai_strerror(error)), 1;
  int s = socket(found->ai_family, SOCK_STREAM, 0);
  if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen) != 0) return perror(words[1]), 1;
  dprintf(s, "GET /page HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", words[1]);
  char buffer[4096], status[16] = "";
  ssize_t size;
  while ((size = read(s, buffer, sizeof buffer)) > 0) {
    if (status[0] == '\0') memcpy(status, buffer, 12);
    fwrite(buffer, 1, (size_t)size, stdout);
  }
  return strncmp(status, "HTTP/1.1 200", 12) == 0 ? 0 : 1;
}
