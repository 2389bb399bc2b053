"""Facts read from the disassembler's text."""

from __future__ import annotations

from kernelopt_bot.sandbox.worker.facts import instructions, resources

LISTING = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   HGMMA.64x64x8.F32.TF32 R24, gdesc[UR8], R24 ;
        /*0030*/                   HMMA.16816.F32.BF16 R4, R4, R6, R8 ;
        /*0040*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0050*/               @P1 STL.64 [R1], R4 ;
        /*0060*/                   MUFU.EX2 R3, R3 ;
        /*0070*/                   EXIT ;
.L_x_0:
"""


def test_mnemonics_are_counted_and_predicates_skipped() -> None:
    assert instructions(LISTING) == {
        "LDG": 1, "HGMMA": 1, "TF32": 1, "HMMA": 1, "BF16": 1, "RED": 1, "STL": 1, "MUFU": 1}


def test_resources_take_the_largest_function() -> None:
    text = " Function a:\n  REG:26 STACK:0 SHARED:512 LOCAL:0\n Function b:\n  REG:40 STACK:16 SHARED:0 LOCAL:0\n"
    assert resources(text)["REG"] == 40 and resources(text)["STACK"] == 16 and resources(text)["SHARED"] == 512
