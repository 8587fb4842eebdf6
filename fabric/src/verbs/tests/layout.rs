//! Compares the layouts and numbers of `ffi.rs` with the header of the installed libibverbs-dev.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::Room;
use crate::verbs::ffi;
use crate::{Mtu, QpState};

/// What a C expression must be.
struct Fact {
    c: String,
    value: i64,
}

fn number(value: usize) -> i64 {
    i64::try_from(value).expect("layouts are small")
}

/// Size of a structure and place of its fields: `Rust "C" { rust_field: "c.field" … }`, or a field
/// of the same name.
macro_rules! layouts {
    ($facts:ident; $($rust:ident $c:literal { $($field:ident $(= $name:literal)?),* $(,)? })*) => {
        $(
            $facts.push(Fact { c: format!("sizeof({})", $c), value: number(size_of::<ffi::$rust>()) });
            $(
                #[allow(unused_mut, unused_assignments, reason = "most names are the same")]
                let mut name = stringify!($field);
                $( name = $name; )?
                $facts.push(Fact {
                    c: format!("offsetof({}, {name})", $c),
                    value: number(offset_of!(ffi::$rust, $field)),
                });
            )*
        )*
    };
}

macro_rules! numbers {
    ($facts:ident; $($rust:expr => $c:literal),* $(,)?) => {
        $( $facts.push(Fact { c: format!("(long long){}", $c), value: i64::from($rust) }); )*
    };
}

fn objects(facts: &mut Vec<Fact>) {
    layouts! { facts;
        Device "struct ibv_device" {
            obsolete = "_ops", node_type, transport_type, name, dev_name, dev_path, ibdev_path,
        }
        ContextOps "struct ibv_context_ops" {
            poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv,
        }
        Context "struct ibv_context" {
            device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat,
        }
        Pd "struct ibv_pd" { context, handle }
        Mr "struct ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        CompChannel "struct ibv_comp_channel" { context, fd, refcnt }
        Cq "struct ibv_cq" {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        Srq "struct ibv_srq" { context, srq_context, pd, handle, mutex, cond, events_completed }
        Qp "struct ibv_qp" {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
            cond, events_completed,
        }
        Ah "struct ibv_ah" { context, pd, handle }
        XrcdInitAttr "struct ibv_xrcd_init_attr" { comp_mask, fd, oflags }
        SrqInitAttrEx "struct ibv_srq_init_attr_ex" {
            srq_context, max_wr = "attr.max_wr", max_sge = "attr.max_sge",
            srq_limit = "attr.srq_limit", comp_mask, srq_type, pd, xrcd, cq,
            tag_matching = "tm_cap",
        }
        QpInitAttrEx "struct ibv_qp_init_attr_ex" {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
            rest = "create_flags",
        }
        QpOpenAttr "struct ibv_qp_open_attr" { comp_mask, qp_num, xrcd, qp_context, qp_type }
    }
}

fn attributes(facts: &mut Vec<Fact>) {
    layouts! { facts;
        DeviceAttr "struct ibv_device_attr" {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id,
            vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd,
            max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom,
            max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
            max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt,
        }
        OdpCaps "struct ibv_odp_caps" {
            general_caps, rc_odp_caps = "per_transport_caps.rc_odp_caps",
            uc_odp_caps = "per_transport_caps.uc_odp_caps",
            ud_odp_caps = "per_transport_caps.ud_odp_caps",
        }
        PortAttr "struct ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2,
        }
        GidEntry "struct ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex }
        Gid "union ibv_gid" {}
        SrqInitAttr "struct ibv_srq_init_attr" {
            srq_context, max_wr = "attr.max_wr", max_sge = "attr.max_sge",
            srq_limit = "attr.srq_limit",
        }
        QpCap "struct ibv_qp_cap" {
            max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
        }
        QpInitAttr "struct ibv_qp_init_attr" {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        }
        GlobalRoute "struct ibv_global_route" {
            dgid, flow_label, sgid_index, hop_limit, traffic_class,
        }
        AhAttr "struct ibv_ah_attr" {
            grh, dlid, sl, src_path_bits, static_rate, is_global, port_num,
        }
        QpAttr "struct ibv_qp_attr" {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
    }
    // Of the greater structure only the beginning is known here.
    facts.push(Fact {
        c: "offsetof(struct ibv_device_attr_ex, odp_caps)".to_owned(),
        value: number(offset_of!(ffi::DeviceAttrEx, odp_caps)),
    });
}

fn requests(facts: &mut Vec<Fact>) {
    layouts! { facts;
        Sge "struct ibv_sge" { addr, length, lkey }
        SendWr "struct ibv_send_wr" {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn = "qp_type.xrc.remote_srqn", rest = "bind_mw",
        }
        RecvWr "struct ibv_recv_wr" { wr_id, next, sg_list, num_sge }
        Wc "struct ibv_wc" {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        }
        AsyncEvent "struct ibv_async_event" { element, event_type }
    }
    let wr = offset_of!(ffi::SendWr, wr);
    for (name, offset) in [
        ("rdma.remote_addr", offset_of!(ffi::WrRdma, remote_addr)),
        ("rdma.rkey", offset_of!(ffi::WrRdma, rkey)),
        ("atomic.remote_addr", offset_of!(ffi::WrAtomic, remote_addr)),
        ("atomic.compare_add", offset_of!(ffi::WrAtomic, compare_add)),
        ("atomic.swap", offset_of!(ffi::WrAtomic, swap)),
        ("atomic.rkey", offset_of!(ffi::WrAtomic, rkey)),
        ("ud.ah", offset_of!(ffi::WrUd, ah)),
        ("ud.remote_qpn", offset_of!(ffi::WrUd, remote_qpn)),
        ("ud.remote_qkey", offset_of!(ffi::WrUd, remote_qkey)),
    ] {
        let c = format!("offsetof(struct ibv_send_wr, wr.{name})");
        facts.push(Fact { c, value: number(wr + offset) });
    }
}

/// Newer functions are found by their distance from the context, which is the end of the structure.
fn extension(facts: &mut Vec<Fact>) {
    let end = offset_of!(ffi::VerbsContextTail, context);
    let xrc = offset_of!(ffi::VerbsContextTail, xrc);
    for (name, offset) in [
        ("query_device_ex", offset_of!(ffi::VerbsContextTail, query_device_ex)),
        ("open_qp", xrc + offset_of!(ffi::XrcFunctions, open_qp)),
        ("create_qp_ex", xrc + offset_of!(ffi::XrcFunctions, create_qp_ex)),
        ("get_srq_num", xrc + offset_of!(ffi::XrcFunctions, get_srq_num)),
        ("create_srq_ex", xrc + offset_of!(ffi::XrcFunctions, create_srq_ex)),
        ("open_xrcd", xrc + offset_of!(ffi::XrcFunctions, open_xrcd)),
        ("close_xrcd", xrc + offset_of!(ffi::XrcFunctions, close_xrcd)),
        ("sz", offset_of!(ffi::VerbsContextTail, size)),
    ] {
        let c = format!(
            "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {name})"
        );
        facts.push(Fact { c, value: number(end - offset) });
    }
    let c = "sizeof(struct verbs_context) - offsetof(struct verbs_context, context)".to_owned();
    facts.push(Fact { c, value: number(size_of::<ffi::Context>()) });
}

fn constants(facts: &mut Vec<Fact>) {
    numbers! { facts;
        ffi::TRANSPORT_IB => "IBV_TRANSPORT_IB", ffi::DEVICE_XRC => "IBV_DEVICE_XRC",
        ffi::ATOMIC_NONE => "IBV_ATOMIC_NONE", ffi::ATOMIC_GLOB => "IBV_ATOMIC_GLOB",
        ffi::XRCD_FD_AND_FLAGS => "(IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS)",
        ffi::ODP_SUPPORT => "(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT)",
        ffi::ACCESS_LOCAL_WRITE => "IBV_ACCESS_LOCAL_WRITE",
        ffi::ACCESS_ON_DEMAND => "IBV_ACCESS_ON_DEMAND",
        ffi::ODP_SEND_RECV_WRITE_READ =>
            "(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ)",
        ffi::PORT_NOP => "IBV_PORT_NOP", ffi::PORT_DOWN => "IBV_PORT_DOWN",
        ffi::PORT_ACTIVE => "IBV_PORT_ACTIVE",
        ffi::LINK_LAYER_UNSPECIFIED => "IBV_LINK_LAYER_UNSPECIFIED",
        ffi::LINK_LAYER_INFINIBAND => "IBV_LINK_LAYER_INFINIBAND",
        ffi::LINK_LAYER_ETHERNET => "IBV_LINK_LAYER_ETHERNET",
        ffi::GID_TYPE_ROCE_V2 => "IBV_GID_TYPE_ROCE_V2",
        ffi::QPT_RC => "IBV_QPT_RC", ffi::QPT_UD => "IBV_QPT_UD",
        ffi::QPT_XRC_SEND => "IBV_QPT_XRC_SEND", ffi::QPT_XRC_RECV => "IBV_QPT_XRC_RECV",
        ffi::SRQT_XRC => "IBV_SRQT_XRC", ffi::QP_INIT_XRCD => "IBV_QP_INIT_ATTR_XRCD",
        ffi::SRQ_INIT_TYPE_PD_DOMAIN_AND_CQ =>
            "(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ)",
        ffi::QP_OPEN_NUMBER_DOMAIN_AND_TYPE =>
            "(IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE)",
        QpState::Reset as i32 => "IBV_QPS_RESET", QpState::Init as i32 => "IBV_QPS_INIT",
        QpState::Rtr as i32 => "IBV_QPS_RTR", QpState::Rts as i32 => "IBV_QPS_RTS",
        QpState::Error as i32 => "IBV_QPS_ERR",
        ffi::WR_RDMA_WRITE => "IBV_WR_RDMA_WRITE", ffi::WR_SEND => "IBV_WR_SEND",
        ffi::WR_RDMA_WRITE_WITH_IMM => "IBV_WR_RDMA_WRITE_WITH_IMM",
        ffi::WR_SEND_WITH_IMM => "IBV_WR_SEND_WITH_IMM", ffi::WR_RDMA_READ => "IBV_WR_RDMA_READ",
        ffi::WR_ATOMIC_CMP_AND_SWP => "IBV_WR_ATOMIC_CMP_AND_SWP",
        ffi::WR_ATOMIC_FETCH_AND_ADD => "IBV_WR_ATOMIC_FETCH_AND_ADD",
        ffi::SEND_SIGNALED => "IBV_SEND_SIGNALED", ffi::SEND_INLINE => "IBV_SEND_INLINE",
        ffi::WC_WITH_IMM => "IBV_WC_WITH_IMM",
        ffi::EVENT_CQ_ERR => "IBV_EVENT_CQ_ERR", ffi::EVENT_QP_FATAL => "IBV_EVENT_QP_FATAL",
        ffi::EVENT_QP_REQ_ERR => "IBV_EVENT_QP_REQ_ERR",
        ffi::EVENT_QP_ACCESS_ERR => "IBV_EVENT_QP_ACCESS_ERR",
        ffi::EVENT_DEVICE_FATAL => "IBV_EVENT_DEVICE_FATAL",
        ffi::EVENT_PORT_ACTIVE => "IBV_EVENT_PORT_ACTIVE", ffi::EVENT_PORT_ERR => "IBV_EVENT_PORT_ERR",
        // Numbers that convert.rs knows without a name.
        1 => "IBV_WC_LOC_LEN_ERR", 2 => "IBV_WC_LOC_QP_OP_ERR", 4 => "IBV_WC_LOC_PROT_ERR",
        5 => "IBV_WC_WR_FLUSH_ERR", 9 => "IBV_WC_REM_INV_REQ_ERR", 10 => "IBV_WC_REM_ACCESS_ERR",
        11 => "IBV_WC_REM_OP_ERR", 12 => "IBV_WC_RETRY_EXC_ERR", 13 => "IBV_WC_RNR_RETRY_EXC_ERR",
        1 => "IBV_WC_RDMA_WRITE", 2 => "IBV_WC_RDMA_READ", 4 => "IBV_WC_FETCH_ADD",
        128 => "IBV_WC_RECV", 129 => "IBV_WC_RECV_RDMA_WITH_IMM",
        Mtu::B256 as i32 => "IBV_MTU_256", Mtu::B4096 as i32 => "IBV_MTU_4096",
        // The same bits as `Access`.
        1 => "IBV_ACCESS_LOCAL_WRITE", 2 => "IBV_ACCESS_REMOTE_WRITE", 4 => "IBV_ACCESS_REMOTE_READ",
        8 => "IBV_ACCESS_REMOTE_ATOMIC",
    }
    for (bit, name) in ffi::mask::NAMES {
        facts.push(Fact { c: format!("(long long)IBV_QP_{name}"), value: (*bit).into() });
    }
}

#[test]
fn layouts_and_numbers_are_those_of_the_header() {
    let mut facts = Vec::new();
    objects(&mut facts);
    attributes(&mut facts);
    requests(&mut facts);
    extension(&mut facts);
    constants(&mut facts);
    assert!(facts.len() > 250, "only {} facts", facts.len());

    let room = Room::new("layout");
    let source = room.0.join("facts.c");
    let program = room.0.join("facts");
    let mut text =
        String::from("#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\n");
    text.push_str("int main(void) {\n");
    for fact in &facts {
        writeln!(text, "    printf(\"%lld\\n\", (long long)({}));", fact.c).expect("text");
    }
    text.push_str("    return 0;\n}\n");
    std::fs::write(&source, text).expect("write");
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").is_file() {
        println!("skipped: infiniband/verbs.h is not here (package libibverbs-dev)");
        return;
    }
    let built = Command::new("cc").arg("-o").arg(&program).arg(&source).output();
    let built = match built {
        Ok(built) => built,
        Err(error) => {
            println!("skipped: no C compiler: {error}");
            return;
        }
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let answers = Command::new(&program).output().expect("run");
    let answers = String::from_utf8(answers.stdout).expect("numbers");
    let seen: Vec<i64> = answers.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(seen.len(), facts.len());
    let wrong: Vec<String> = facts
        .iter()
        .zip(&seen)
        .filter(|(fact, seen)| fact.value != **seen)
        .map(|(fact, seen)| format!("{}: {seen} in C, {} here", fact.c, fact.value))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} layouts and numbers compared", facts.len());
}
