/* Stand-in for libtorch_python.so: knows which GPUs torch has code for. ARCHS comes from the lab. */
const char *netdoctor_lab_archs(void) { return ARCHS; }
