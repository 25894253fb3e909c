#include "services/balancer/service.h"

int main(int argc, char** argv) {
  const millrace::shell::Program program{
      .name = "millrace-decode-balancer",
      .summary =
          "Picks the decode instance for each request, from what the decode workers report to it. Keeps no state "
          "that a restart would lose.",
      .role = millrace::cluster::Role::kDecodeBalancer};
  return millrace::balancer::Main(program, millrace::cluster::Role::kDecode, argc, argv);
}
