"""Lines of real kernels' logs, as they were found in public, each with its source.

What is expected: (XID, SXid, PCI address). Prefixes of dmesg, journal and syslog are kept.
"""

from __future__ import annotations

OPEN_GPU = "github.com/NVIDIA/open-gpu-kernel-modules"
GPUD = "github.com/leptonai/gpud"
SENTINEL = "github.com/NVIDIA/NVSentinel"
FORUM = "forums.developer.nvidia.com"

REAL_LINES: tuple[tuple[str, str, tuple[int, int, str]], ...] = (
    (
        f"{OPEN_GPU} issue 461",
        "NVRM: Xid (PCI:0004:01:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        (79, 0, "0004:01:00.0"),
    ),
    (
        f"{OPEN_GPU} issue 461",
        "NVRM: Xid (PCI:0004:01:00): 119, pid=430, name=nv_queue, "
        "Timeout waiting for RPC from GSP!",
        (119, 0, "0004:01:00.0"),
    ),
    (
        f"{FORUM} thread 49452",
        "[155044.078590] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.",
        (79, 0, "0000:06:00.0"),
    ),
    (
        "Xubuntu 20.04, driver 450, a user's notes",
        "Okt 06 17:59:27 balrog kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1122, "
        "GPU has fallen off the bus.",
        (79, 0, "0000:01:00.0"),
    ),
    (
        "Xubuntu 20.04, driver 450, a user's notes",
        "Okt 06 17:59:27 balrog kernel: NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
        (0, 0, "0000:01:00.0"),
    ),
    (
        f"{SENTINEL} issue 155, driver 570.158.01",
        "NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed "
        "in this system has\n               NVRM: fallen off the bus and is not responding to "
        "commands.",
        (0, 0, "0000:b3:00.0"),
    ),
    (
        f"{FORUM} thread 47210",
        "NVRM: Xid (PCI:0000:01:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 0): "
        "Out Of Range Address",
        (13, 0, "0000:01:00.0"),
    ),
    (
        f"{FORUM} thread 47210",
        "NVRM: Xid (PCI:0000:01:00): 43, Ch 00000020, engmask 00000101",
        (43, 0, "0000:01:00.0"),
    ),
    (
        f"{GPUD} pull request 46",
        "[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', "
        "name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): "
        "Illegal Instruction Parameter",
        (13, 0, "0000:cb:00.0"),
    ),
    (
        f"{GPUD} pull request 46",
        "[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, "
        "name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
        (109, 0, "0000:cb:00.0"),
    ),
    (
        "github.com/vllm-project/vllm issue 5901 (A800, driver 535)",
        "[93297.027938] NVRM: Xid (PCI:0000:43:00): 13, pid='<unknown>', name=<unknown>, Graphics "
        "Exception: ESR 0x52e7b0=0x101000e 0x52e7b4=0x4 0x52e7a8=0xc81eb60 0x52e7ac=0x1174",
        (13, 0, "0000:43:00.0"),
    ),
    (
        f"{OPEN_GPU} issue 1030 (RTX 5090, driver 590.48.01)",
        "[ 130.456250] [ T1946] NVRM: Xid (PCI:0000:2b:00): 31, pid=1942, name=llama-bench, "
        "channel 0x00000002, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC6 GPCCLIENT_T1_13 "
        "faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        (31, 0, "0000:2b:00.0"),
    ),
    (
        "github.com/doitsujin/dxvk issue 1027 (driver 418)",
        "[31543.449443] NVRM: Xid (PCI:0000:01:00): 31, Ch 0000003a, intr 10000000. MMU Fault: "
        "ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x17_00592000. Fault is of type FAULT_PDE",
        (31, 0, "0000:01:00.0"),
    ),
    (
        "github.com/doitsujin/dxvk issue 1027 (driver 418)",
        "[31609.615516] NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000052 intr 02000000",
        (32, 0, "0000:01:00.0"),
    ),
    (
        "github.com/Bumblebee-Project/Bumblebee issue 677 (2015)",
        "[24128.834365] NVRM: Xid (PCI:0000:01:00): 31, Ch 00000003, engmask 00000101, "
        "intr 10000000",
        (31, 0, "0000:01:00.0"),
    ),
    (
        "bbs.archlinux.org topic 283219",
        "Feb 01 14:25:31 archbox kernel: NVRM: Xid (PCI:0000:01:00): 38, pid=1659,",
        (38, 0, "0000:01:00.0"),
    ),
    (
        "github.com/NVIDIA/gpu-operator issue 1146",
        "NVRM: Xid (PCI:0000:8a:00): 48, An uncorrectable double bit error (DBE) has been "
        "detected on GPU in the framebuffer at partition 4, subpartition 1",
        (48, 0, "0000:8a:00.0"),
    ),
    (
        "github.com/NVIDIA/gpu-operator issue 1146",
        "NVRM: Xid (PCI:0000:07:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double "
        "bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x7fdf0de80 "
        "partition 5, subpartition 1",
        (48, 0, "0000:07:00.0"),
    ),
    (
        "github.com/stas00/ml-engineering, accelerator debug notes",
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, "
        "reset gpu to activate.",
        (63, 0, "0000:10:1c.0"),
    ),
    (
        "chronicle of a training of 2024, instance ip-26-0-146-100",
        "May 19 07:08:57 ip-26-0-146-100 kernel: [680111.646286] NVRM: Xid (PCI:0000:10:1c): 63, "
        "pid=1850, Row Remapper: New row marked for remapping, reset gpu to activate",
        (63, 0, "0000:10:1c.0"),
    ),
    (
        f"{FORUM} thread 292539",
        "kernel: NVRM: Xid (PCI:0000:c1:00): 74, pid='<unknown>', name=<unknown>, "
        "NVLink: fatal error detected on link 1",
        (74, 0, "0000:c1:00.0"),
    ),
    (
        f"{SENTINEL} design note 022",
        "[449410.332316] NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: "
        "fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
        (74, 0, "0003:00:00.0"),
    ),
    (
        f"{OPEN_GPU}, the driver's own comment on containment",
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). "
        "RST: No, D-RST: No",
        (94, 0, "0000:01:00.0"),
    ),
    (
        f"{OPEN_GPU}, the driver's own comment on containment",
        "NVRM: Xid (PCI:0000:01:00): 95, pid=7062, Uncontained: LTC TAG (0x2,0x0). RST: Yes, "
        "D-RST: No",
        (95, 0, "0000:01:00.0"),
    ),
    (
        "a data centre's fault ticket (H20)",
        "NVRM: Xid (PCI:0000:37:00): 95, pid=5171, Uncontained: FBHUB. RST: Yes, D-RST: No",
        (95, 0, "0000:37:00.0"),
    ),
    (
        f"{GPUD}, recorded for its tests",
        "NVRM: Xid (PCI:0000:19:00): 119, pid=452531, name=cache_mgr_main, Timeout after 6s of "
        "waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) "
        "(0x20809004 0x608).",
        (119, 0, "0000:19:00.0"),
    ),
    (
        "an OpenShift cluster's issue, driver daemon set 412.86",
        "[ 3947.590120] NVRM: Xid (PCI:0000:61:00): 119, pid=123417, name=nv-hostengine, Timeout "
        "after 6s of waiting for RPC response from GPU0 GSP! Expected function 10 (FREE) "
        "(0xc0000005 0x0).",
        (119, 0, "0000:61:00.0"),
    ),
    (
        "a DGX Spark owner's notes",
        "NVRM: Xid (PCI:000f:01:00): 120, pid=9111, name=python, GSP task exception: load access "
        "fault",
        (120, 0, "000f:01:00.0"),
    ),
    (
        "a nouveau bug report, driver's own log",
        "[  416.096726] NVRM: Xid (PCI:0000:01:00): 62, pid=2763, 0c83(1870) 00000000 00000000",
        (62, 0, "0000:01:00.0"),
    ),
    (
        f"{OPEN_GPU} issue 1150 (driver 590.48.01)",
        "kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by "
        "previous Xid 149",
        (45, 0, "0000:dc:00.0"),
    ),
    (
        "Fabric Manager user guide",
        "[...] NVRM: Xid (PCI:0000:34:00): 45, Ch 00000010",
        (45, 0, "0000:34:00.0"),
    ),
    (
        f"{SENTINEL}, recorded for its tests (GB200)",
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 "
        "0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        (149, 0, "0018:01:00.0"),
    ),
    (
        f"{GPUD} pull request 1160",
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 "
        "0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
        (149, 0, "0000:00:00.0"),
    ),
    (
        f"{GPUD} pull request 1174",
        "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 "
        "0x00000000 0x00000000 0x00000000 0x00000000)",
        (149, 0, "0019:01:00.0"),
    ),
    (
        f"{GPUD} pull request 1174",
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 "
        "0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
        (145, 0, "0018:01:00.0"),
    ),
    (
        "github.com/NVIDIA/TensorRT-LLM issue 4816 (B200)",
        "NVRM: Xid (PCI:0000:5f:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02",
        (145, 0, "0000:5f:00.0"),
    ),
    (
        f"{GPUD} pull request 1160",
        "NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 "
        "0x00000000 0x00000000 0x00000000 0x00000000)",
        (144, 0, "0000:01:00.0"),
    ),
    (
        f"{SENTINEL}, recorded for its tests (GB200)",
        "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
        "(GPU Reset Required)",
        (154, 0, "0008:01:00.0"),
    ),
    (
        "a workstation owner's notes (RTX 5090, driver 610)",
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
        "(OS Reboot)",
        (154, 0, "0000:01:00.0"),
    ),
    (
        "a workstation owner's notes (driver 590)",
        "NVRM: Xid (PCI:0000:0d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
        "(PF FLR)",
        (154, 0, "0000:0d:00.0"),
    ),
    (
        "Fabric Manager user guide",
        "[...] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS "
        "crumbstore MCTO (First)",
        (0, 28006, "0000:c1:00.0"),
    ),
    (
        f"{GPUD}, recorded for its tests",
        "[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM "
        "Fault Up",
        (0, 20034, "0000:00:00.0"),
    ),
    (
        f"{GPUD} pull request 338",
        "kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch1: SXid "
        "(PCI:0000:84:00.0): 12028, Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064}",
        (0, 12028, "0000:84:00.0"),
    ),
    (
        "github.com/NVIDIA/nvtrust issue 124 (H100, driver 570.195.03)",
        "[   38.180708] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine "
        "instance 44 Sub-engine instance 00",
        (0, 22013, "0000:04:00.0"),
    ),
)

NOT_OURS = (
    "NVRM: GPU at PCI:0000:34:00: GPU-c43f0536-e751-7211-d7a7-78c95249ee7d",
    "NVRM: GPU Board Serial Number: 0323618040756",
    "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x1a:1227)",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
    "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
    "NVRM: Xid error: xyz, invalid data",
    "nvidia-modeset: ERROR: GPU:0: Failed detecting connected display devices",
    "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
    "Memory cgroup out of memory: Killed process 51807 (oxide) total-vm:412192kB",
    "usb 1-1: it has fallen off the bus",
    "",
)
