"""Lines of PTX around a bulk copy and its mbarrier."""

from __future__ import annotations

from tests.support.emulator.cluster_kernels import MAKE, SYNC, THREADS

FENCED = f"{MAKE.format(count=1)} fence.mbarrier_init.release.cluster; {SYNC}"


ALONE = f"{MAKE.format(count=1)} bar.sync 0;"


EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};"


TELLS = "mbarrier::complete_tx::bytes"


BYTES = 4 * THREADS


FROM = f"mad.lo.u32 %r7, %r2, 1000, %r1; st.shared.b32 [%r5], %r7; fence.proxy.async; {SYNC}"


MOVE = f"""add.u32 %r13, %r4, 512; mapa.shared::cluster.u32 %r13, %r13, %r3; mapa.shared::cluster.u32 %r14, bar, %r3;
@%p1 cp{{reduce}}.async.bulk.shared::cluster.shared::cta.{TELLS}{{op}} [%r13], [%r4], {BYTES}, [%r14];"""
