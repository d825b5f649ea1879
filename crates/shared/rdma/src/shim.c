/*
 * One reliable queue pair of RDMA verbs behind a handful of plain functions, for src/verbs.rs.
 *
 * The library is opened at run time: a program that has this works where libibverbs is not
 * installed, and says so when it is asked for RDMA. Functions that the header defines inline
 * and that need no symbol of the library are used as they are.
 *
 * Every function here is called by one thread at a time for one queue pair. The caller checks
 * indexes and lengths. A function that fails returns a negative errno.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What the library itself has to offer: name of the member, and of the symbol. */
#define CALLS(X) \
	X(get_device_list, ibv_get_device_list) X(free_device_list, ibv_free_device_list) \
	X(open_device, ibv_open_device) X(close_device, ibv_close_device) \
	X(get_device_name, ibv_get_device_name) X(query_device, ibv_query_device) \
	X(query_port, ibv_query_port) X(query_gid_ex, _ibv_query_gid_ex) \
	X(alloc_pd, ibv_alloc_pd) X(dealloc_pd, ibv_dealloc_pd) \
	X(reg_mr, ibv_reg_mr) X(dereg_mr, ibv_dereg_mr) \
	X(create_comp_channel, ibv_create_comp_channel) \
	X(destroy_comp_channel, ibv_destroy_comp_channel) \
	X(create_cq, ibv_create_cq) X(destroy_cq, ibv_destroy_cq) \
	X(get_cq_event, ibv_get_cq_event) X(ack_cq_events, ibv_ack_cq_events) \
	X(create_qp, ibv_create_qp) X(modify_qp, ibv_modify_qp) X(destroy_qp, ibv_destroy_qp) \
	X(wc_status_str, ibv_wc_status_str)

static struct {
#define MEMBER(name, symbol) __typeof__(&symbol) name;
	CALLS(MEMBER)
} verbs;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int loaded;

static void load(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
#define LOOK_UP(name, symbol) \
	*(void **)&verbs.name = dlsym(library, #symbol); \
	if (!verbs.name) \
		return;
	CALLS(LOOK_UP)
	loaded = 1;
}

/* The same structures are in src/verbs.rs. */
struct siftfs_rdma_shape {
	uint8_t address[16];
	uint32_t receives;
	uint32_t sends;
	uint32_t controls;
	uint32_t length;
};

struct siftfs_rdma_end {
	uint8_t gid[16];
	uint32_t queue;
	uint32_t first;
	uint16_t lid;
	uint16_t mtu;
};

struct siftfs_rdma_done {
	uint64_t id;
	uint32_t status;
	uint32_t carries;
	uint32_t length;
	uint32_t carried;
};

_Static_assert(sizeof(struct siftfs_rdma_shape) == 32 && sizeof(struct siftfs_rdma_end) == 28 &&
		   sizeof(struct siftfs_rdma_done) == 24,
	       "src/verbs_tests.rs has the same sizes");

struct siftfs_rdma {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_comp_channel *channel;
	struct ibv_cq *completions;
	struct ibv_mr *region;
	struct ibv_qp *pair;
	char *memory;
	struct siftfs_rdma_shape shape;
	uint8_t port;
	uint8_t gid_index;
	uint8_t with_gid;
	enum ibv_mtu mtu;
	uint16_t lid;
	uint8_t gid[16];
	unsigned int unacknowledged;
};

void siftfs_rdma_close(struct siftfs_rdma *r)
{
	if (!r)
		return;
	/* First, so that the device does not touch the memory any more. */
	if (r->pair)
		verbs.destroy_qp(r->pair);
	if (r->completions) {
		if (r->unacknowledged)
			verbs.ack_cq_events(r->completions, r->unacknowledged);
		verbs.destroy_cq(r->completions);
	}
	if (r->channel)
		verbs.destroy_comp_channel(r->channel);
	if (r->region)
		verbs.dereg_mr(r->region);
	if (r->domain)
		verbs.dealloc_pd(r->domain);
	if (r->context)
		verbs.close_device(r->context);
	free(r->memory);
	free(r);
}

/* Whether the port carries frames from this address; fills in how. */
static int port_fits(struct siftfs_rdma *r, uint8_t number)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	memset(&port, 0, sizeof port);
	if (verbs.query_port(r->context, number, (struct _compat_ibv_port_attr *)&port) ||
	    port.state != IBV_PORT_ACTIVE)
		return 0;
	r->port = number;
	r->mtu = port.active_mtu;
	r->lid = port.lid;
	/* InfiniBand's own network finds a port by its local number, and RoCE by an address of IP. */
	r->with_gid = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	if (!r->with_gid)
		return 1;
	for (int i = 0; i < port.gid_tbl_len && i < 255; i++) {
		if (verbs.query_gid_ex(r->context, number, i, &entry, 0, sizeof entry) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(&entry.gid, r->shape.address, 16) != 0)
			continue;
		r->gid_index = i;
		memcpy(r->gid, &entry.gid, 16);
		return 1;
	}
	return 0;
}

/* Opens the device with the address; without one, the first active one of InfiniBand's own network. */
static int choose(struct siftfs_rdma *r)
{
	struct ibv_device **list = verbs.get_device_list(NULL);
	if (!list) /* ENOSYS: the kernel has no devices of this kind at all. */
		return errno == ENOSYS ? -ENODEV : -errno;
	int found = 0;
	for (int with_gid = 1; with_gid >= 0 && !found; with_gid--) {
		for (int i = 0; list[i] && !found; i++) {
			struct ibv_device_attr attr;
			r->context = verbs.open_device(list[i]);
			if (!r->context)
				continue;
			int ports = verbs.query_device(r->context, &attr) ? 0 : attr.phys_port_cnt;
			for (int port = 1; port <= ports && port <= 255 && !found; port++)
				found = port_fits(r, port) && r->with_gid == with_gid;
			if (!found) {
				verbs.close_device(r->context);
				r->context = NULL;
			}
		}
	}
	verbs.free_device_list(list);
	return found ? 0 : -ENODEV;
}

static int set_up(struct siftfs_rdma *r, const char **step)
{
	const struct siftfs_rdma_shape *s = &r->shape;
	size_t bytes = ((size_t)s->receives + s->sends) * s->length;
	int entries = s->receives + s->sends + s->controls;
#define STEP(what, failed) \
	*step = what; \
	errno = 0; \
	if (failed) \
		return errno ? -errno : -EIO;
	STEP("allocate memory", (errno = posix_memalign((void **)&r->memory, 4096, bytes)) != 0)
	memset(r->memory, 0, bytes);
	STEP("allocate a protection domain", !(r->domain = verbs.alloc_pd(r->context)))
	/* The device writes to what was posted. No peer is given the right to name addresses. */
	STEP("register memory (see ulimit -l)",
	     !(r->region = verbs.reg_mr(r->domain, r->memory, bytes, IBV_ACCESS_LOCAL_WRITE)))
	STEP("make a completion channel", !(r->channel = verbs.create_comp_channel(r->context)))
	STEP("make the completion channel answer at once",
	     fcntl(r->channel->fd, F_SETFL, fcntl(r->channel->fd, F_GETFL) | O_NONBLOCK) < 0)
	STEP("make a completion queue",
	     !(r->completions = verbs.create_cq(r->context, entries, NULL, r->channel, 0)))
	struct ibv_qp_init_attr init = {
		.send_cq = r->completions,
		.recv_cq = r->completions,
		.cap = { .max_send_wr = s->sends + s->controls,
			 .max_recv_wr = s->receives,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	STEP("make a queue pair", !(r->pair = verbs.create_qp(r->domain, &init)))
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = r->port };
	STEP("begin with a queue pair",
	     (errno = verbs.modify_qp(r->pair, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				      IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) != 0)
	STEP("ask for completions", (errno = ibv_req_notify_cq(r->completions, 0)) != 0)
	return 0;
}

int siftfs_rdma_open(const struct siftfs_rdma_shape *shape, struct siftfs_rdma **out, const char **step)
{
	pthread_once(&once, load);
	*step = "load libibverbs.so.1";
	if (!loaded)
		return -ELIBACC;
	struct siftfs_rdma *r = calloc(1, sizeof *r);
	*step = "allocate memory";
	if (!r)
		return -ENOMEM;
	r->shape = *shape;
	*step = "find a device";
	int failed = choose(r);
	if (!failed)
		failed = set_up(r, step);
	if (failed) {
		siftfs_rdma_close(r);
		return failed;
	}
	*out = r;
	return 0;
}

/* What the peer needs to know. The first sequence number is the caller's to choose. */
void siftfs_rdma_describe(const struct siftfs_rdma *r, struct siftfs_rdma_end *end)
{
	memset(end, 0, sizeof *end);
	memcpy(end->gid, r->gid, 16);
	end->queue = r->pair->qp_num;
	end->lid = r->lid;
	end->mtu = r->mtu;
}

int siftfs_rdma_connect(struct siftfs_rdma *r, uint32_t first, const struct siftfs_rdma_end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < r->mtu ? peer->mtu : r->mtu,
		.dest_qp_num = peer->queue,
		.rq_psn = peer->first,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = peer->lid, .port_num = r->port, .is_global = r->with_gid },
	};
	if (r->with_gid) {
		memcpy(&attr.ah_attr.grh.dgid, peer->gid, 16);
		attr.ah_attr.grh.sgid_index = r->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	int failed = verbs.modify_qp(r->pair, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
	if (failed)
		return -failed;
	/* 4.096 us * 2^14 = 67 ms until a packet is sent again, seven times. A peer that is not
	 * ready is never waited for: credits see to it that it is. */
	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 0, .sq_psn = first,
	};
	return -verbs.modify_qp(r->pair, &ready, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

char *siftfs_rdma_memory(const struct siftfs_rdma *r)
{
	return r->memory;
}

int siftfs_rdma_descriptor(const struct siftfs_rdma *r)
{
	return r->channel->fd;
}

int siftfs_rdma_receive(struct siftfs_rdma *r, uint32_t buffer, uint64_t id)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)(r->memory + (size_t)buffer * r->shape.length),
		.length = r->shape.length,
		.lkey = r->region->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = id, .sg_list = &piece, .num_sge = 1 }, *bad;
	return -ibv_post_recv(r->pair, &request, &bad);
}

/* Sends the first bytes of a buffer, or none, and `carried` with them. */
int siftfs_rdma_send(struct siftfs_rdma *r, uint32_t buffer, uint32_t length, uint64_t id, uint32_t carried)
{
	struct ibv_sge piece = {
		.addr = (uintptr_t)(r->memory + (length ? (size_t)buffer * r->shape.length : 0)),
		.length = length,
		.lkey = r->region->lkey,
	};
	struct ibv_send_wr request = {
		.wr_id = id,
		.sg_list = &piece,
		.num_sge = length ? 1 : 0,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htobe32(carried),
	}, *bad;
	return -ibv_post_send(r->pair, &request, &bad);
}

/* One completion: 1, none: 0. */
int siftfs_rdma_poll(struct siftfs_rdma *r, struct siftfs_rdma_done *done)
{
	struct ibv_wc wc;
	memset(&wc, 0, sizeof wc);
	int n = ibv_poll_cq(r->completions, 1, &wc);
	if (n < 0)
		return -EIO;
	if (n == 0)
		return 0;
	done->id = wc.wr_id;
	done->status = wc.status;
	done->carries = wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_IMM);
	done->length = wc.byte_len;
	done->carried = wc.status == IBV_WC_SUCCESS ? be32toh(wc.imm_data) : 0;
	return 1;
}

const char *siftfs_rdma_status(uint32_t status)
{
	return verbs.wc_status_str(status);
}

/* Takes the events that have come, and asks for the next one. Completions are to be polled after
 * it: one that came before it was asked for makes no event. */
int siftfs_rdma_take_events(struct siftfs_rdma *r)
{
	struct ibv_cq *queue;
	void *context;
	int any = 0;
	while (verbs.get_cq_event(r->channel, &queue, &context) == 0) {
		any = 1;
		if (++r->unacknowledged == 1024) {
			verbs.ack_cq_events(r->completions, r->unacknowledged);
			r->unacknowledged = 0;
		}
	}
	return any ? -ibv_req_notify_cq(r->completions, 0) : 0;
}

/* Neither side's requests are carried out any more. */
void siftfs_rdma_stop(struct siftfs_rdma *r)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	verbs.modify_qp(r->pair, &attr, IBV_QP_STATE);
}
