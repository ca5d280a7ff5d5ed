/* A libibverbs for the oracle: devices, ports and GIDs as /etc/hcas lists them, and nothing that carries data.
 *
 *     hca NAME PORTS
 *     port NUMBER STATE LINK_LAYER GIDS
 *     gid INDEX 32 HEX DIGITS
 *
 * Structures as libibverbs has them in its ABI, as far as NCCL reads them.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_HCAS 40
#define MOST_PORTS 4
#define MOST_GIDS 64

struct device {
    void *ops[2];
    int node_type, transport_type;
    char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};
struct context {
    struct device *device;
    char rest[4096];
};
struct port_attr {
    int state, max_mtu, active_mtu, gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state;
    uint8_t link_layer, flags;
    uint16_t port_cap_flags2;
};
struct device_attr {
    char fw_ver[64];
    uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    int max_qp, more[28];
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay, phys_port_cnt;
};
_Static_assert(sizeof(struct device_attr) == 232, "phys_port_cnt has its place");

static struct device devices[MOST_HCAS];
static struct port_attr ports[MOST_HCAS][MOST_PORTS + 1];
static uint8_t gids[MOST_HCAS][MOST_PORTS + 1][MOST_GIDS][16];
static int port_count[MOST_HCAS], count = -1;

static void load(void) {
    FILE *file = fopen("/etc/hcas", "r");
    char line[256], name[64], hex[64];
    int a, b, c, d, port = 0;

    count = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "hca %60s %d", name, &a) == 2 && count < MOST_HCAS) {
            strcpy(devices[count].name, name);
            snprintf(devices[count].dev_name, 64, "uverbs%d", count);
            port_count[count++] = a;
        } else if (count && sscanf(line, "port %d %d %d %d", &a, &b, &c, &d) == 4 && a <= MOST_PORTS) {
            port = a;
            ports[count - 1][port].state = b;
            ports[count - 1][port].link_layer = c;
            ports[count - 1][port].gid_tbl_len = d;
            ports[count - 1][port].active_width = 2;
            ports[count - 1][port].active_speed = 64;
        } else if (count && sscanf(line, "gid %d %32s", &a, hex) == 2 && a < MOST_GIDS) {
            for (b = 0; b < 16; b++) {
                sscanf(hex + 2 * b, "%2x", (unsigned *)&c);
                gids[count - 1][port][a][b] = (uint8_t)c;
            }
        }
    }
    if (file)
        fclose(file);
}

struct device **ibv_get_device_list(int *number) {
    if (count < 0)
        load();
    struct device **list = calloc(MOST_HCAS + 1, sizeof *list);
    for (int i = 0; i < count; i++)
        list[i] = &devices[i];
    *number = count;
    return list;
}
void ibv_free_device_list(struct device **list) { free(list); }
const char *ibv_get_device_name(struct device *device) { return device->name; }
struct context *ibv_open_device(struct device *device) {
    struct context *context = calloc(1, sizeof *context);
    context->device = device;
    return context;
}
int ibv_close_device(struct context *context) { (void)context; return 0; }
int ibv_get_async_event(struct context *context, void *event) {
    (void)context, (void)event;
    for (;;)
        pause();
}
void ibv_ack_async_event(void *event) { (void)event; }
int ibv_query_device(struct context *context, struct device_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->phys_port_cnt = (uint8_t)port_count[context->device - devices];
    return 0;
}
int ibv_query_port(struct context *context, uint8_t port, struct port_attr *attr) {
    if (port < 1 || port > MOST_PORTS)
        return EINVAL;
    *attr = ports[context->device - devices][port];
    return 0;
}
int ibv_query_gid(struct context *context, uint8_t port, int index, uint8_t *gid) {
    if (index < 0 || index >= ports[context->device - devices][port].gid_tbl_len || index >= MOST_GIDS) {
        errno = EINVAL;
        return -1;
    }
    memcpy(gid, gids[context->device - devices][port][index], 16);
    return 0;
}
int ibv_query_pkey(struct context *context, uint8_t port, int index, uint16_t *key) {
    (void)context, (void)port;
    *key = 0xffff;
    return index ? EINVAL : 0;
}
int ibv_fork_init(void) { return 0; }
const char *ibv_event_type_str(int event) { (void)event; return "event"; }

/* Looked up, and not called before there is data. */
#define NOT_HERE(name) void *name(void) { errno = ENOSYS; return NULL; }
NOT_HERE(ibv_query_qp)
NOT_HERE(ibv_alloc_pd)
NOT_HERE(ibv_dealloc_pd)
NOT_HERE(ibv_reg_mr)
NOT_HERE(ibv_dereg_mr)
NOT_HERE(ibv_create_comp_channel)
NOT_HERE(ibv_destroy_comp_channel)
NOT_HERE(ibv_create_cq)
NOT_HERE(ibv_destroy_cq)
NOT_HERE(ibv_create_qp)
NOT_HERE(ibv_modify_qp)
NOT_HERE(ibv_destroy_qp)
