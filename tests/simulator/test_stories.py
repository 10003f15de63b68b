"""Shrunken histories that once broke a promise, each for a cause of its own.

The first line of a story is its seed and its limits. Each other line is an operation with its
values and its seed for random choices ("-" is the empty text). A story whose operations change
their values means something else, and may be deleted.
"""

import pytest

from simulator.operations import History, Operation
from simulator.shrink import tell
from simulator.simulated.node import Limits
from tests.simulator.damage_stories import DAMAGE_STORIES

STORIES = {
    "a checkpoint between a failed batch and the next writing of its moves": """403185 600 8192 0 16 4 200 200 2048 5
        declare 2 1 0 1 640735516
        idle 170100994
        crash ordered 0 0 896037242
        sink_stage 0 0 2 3 1065 1 0 0 125621075
        sink_stage 1 1 -1 3 1460 1 0 0 35992593
        sink_stage 1 1 -1 1 4 1 0 1 889111004
        sink_commit 0 0 0 1 0 385041100
        fault sync_directory 0 28 1 218249839
        idle 352415225
        backup 1032865889""",
    "whoever waits for the head while another load ends": """536 600 3000 64 8 1
        declare 1 1 0 1 27058327
        idle 511787610
        group_fetch 1 0 473226011
        publish 0 1 7 4 1 0 796529741
        idle 920841314
        group_reserve 1 1 1 0 577184525
        consume 0 1 1 0 1038792827""",
    "the directory of a queue whose name was not synced": """727 4096 8192 64 16 4
        declare 0 1 0 1 659283287
        declare 1 1 0 1 842369107
        declare 2 1 0 1 711011398
        idle 724469831
        get 0 1 0 477095767
        publish 0 2 9 271 1 0 854430637
        publish 0 1 5 102 1 0 223840087
        tx_commit 0 268327297
        idle 64681577
        publish 0 0 8 292 1 0 103205643
        publish 0 -1 6 154 1 0 616512628
        fault sync_directory 1 24 2 410795371
        idle 1515351""",
    "a load that outlives all segments": """2802 1500 8192 64 2 4
        declare 1 1 0 0 162182237
        page 1 0 769761904
        publish 3 1 1 266 1 0 390027025
        stop 0 447608789
        consume 0 1 1 1 585794050
        idle 191771535
        delete 1 1066653247""",
    "a reader group holds what a failed batch left": """1648 1500 3000 256 16 4
        declare 0 1 0 1 289087224
        idle 1055806642
        group_fetch 0 0 758476172
        publish 0 0 1 489 1 0 283529973
        fault sync 0 24 1 862906920
        idle 59910237
        group_reserve 0 1 1 0 674997173""",
    "messages journaled again are in the index of a checkpoint": """2000 1500 3000 0 2 4
        declare 0 1 0 1 574802002
        declare 1 1 0 1 6892870
        idle 163280915
        group_reserve 0 1 0 0 1051630093
        publish 0 -1 4 4 0 0 741897016
        run flush 1 796066622
        finish flush 1 99085700
        group_reserve 1 1 0 0 535444772
        group_reserve 0 1 1 0 463917264
        disk_full 0 662052892
        idle 604813555""",
    "a retraction of what has no content in memory": """6271 1500 8192 256 8 1
        declare 3 1 0 0 983181208
        idle 1042513904
        consume 0 3 3 0 635475146
        tick 300 78763417
        page 3 0 645400646
        publish 0 -1 10 269 1 0 185732246
        disk_full 1000 420896322
        tick 3000 831964992
        idle 260955865
        publish 0 3 1 254 1 0 250218363
        tick 300 567776961""",
    "a start that finds references without contents": """3050 4096 3000 256 2 1
        declare 0 1 0 1 338252446
        declare 3 1 0 1 694075266
        idle 790798502
        publish 0 -1 1 275 1 0 648482533
        crash_within 16 power 128285452
        fault write 1 28 1 142004110
        run flush 1 773654194
        idle 308413670""",
    "a queue is deleted while a content is read": """9538 1500 3000 0 16 4
        declare 1 1 0 0 684020940
        page 1 0 362443499
        publish 3 1 1 4 0 0 625487057
        idle 645416188
        consume 0 1 1 0 204613507
        delete 1 928755019""",
    "a reader group reserves what is in the index alone, since its batch failed": """8811454 4096 3000 256 8 4 2048 512 2048
        declare 0 1 0 0 816180965
        declare 2 1 0 0 747859080
        idle 493424734
        publish 1 -1 3 32 1 0 503597509
        group_fetch 0 0 849131388
        disk_full 0 893498250
        publish 1 -1 1 4 1 0 545393890
        idle 282610075
        publish 1 2 10 4 1 0 976593816
        publish 1 0 4 13 1 0 794739703
        publish 1 -1 4 40 1 0 691307593
        page 0 0 1054450797
        tx_commit 1 445565537
        overlap flush 0 compact 1 850721114
        group_reserve 0 1 0 0 69609856""",
    "what a torn batch left in the midst of a file hides nothing from later starts": """76559346 600 8192 256 16 4 1048576 65536 2048
        declare 0 1 0 1 65613698
        declare 1 1 0 0 106760219
        idle 867900268
        publish 0 1 1 255 1 0 665113694
        run flush 1 341770664
        finish flush 1 15036608
        publish 0 -1 7 254 1 0 378557768
        crash_within 2 ordered 943759788
        overlap flush 0 read 1 660628151
        get 0 0 1 763164787""",
    "a reader group holds what a failed batch left in the index before there was a group": """1 4096 8192 256 8 4 2048 512 2048
        declare 0 1 0 0 0
        idle 1
        fault write 0 28 1 2
        publish 0 0 5 20 1 0 3
        idle 4
        mode 0 1 5
        tick 3000 6
        idle 7
        tick 3000 8
        idle 9
        group_fetch 0 0 10
        idle 11
        group_reserve 0 10 1 0 12
        idle 13
        crash power 0 0 14""",
    "the check after a power failure: a new content file without its header": """464354984 600 1000 256 2 1 1048576 65536 2048
        declare 0 1 0 0 492959575
        idle 590183148
        publish 3 -1 1 261 1 0 121031089
        group_reserve 0 1 0 0 541035461
        publish 0 0 6 259 1 0 837569123
        tick 300 286467496
        run flush 1 850988363
        crash_within 4 ordered 840748827
        finish flush 1 993612081
        run flush 1 798581144""",
    "the check after a power failure: contents of which the end is there and not the beginning": """464358363 4096 8192 0 8 4 0 200 2048
        declare 0 1 0 0 72078826
        publish 2 0 1 4 1 0 597820412
        idle 1002898461
        crash_within 4 power 727772512
        publish 0 0 1 218 1 0 68532667
        tick 3000 114652488
        publish 0 -1 2 185 1 0 762532580
        publish 0 0 1 4 1 0 350624334
        idle 226345392""",
    "a queue that is not durable pages what a durable one has in the content store": """2 4096 1000 256 8 4 2048 512 2048
        declare 0 0 0 1 0
        declare 1 1 0 0 1
        idle 2
        publish 0 -1 8 400 1 0 3
        idle 4
        tick 60 5
        idle 6
        purge 1 7
        idle 8
        tick 3000 9
        idle 10
        tick 3000 11
        idle 12
        tick 3000 13
        idle 14
        tick 3000 15
        idle 16
        consume 2 0 0 1 17
        idle 18""",
    "what a failed commit gives back is given on by the time it is now": """464357644 1500 8192 0 16 1 200 200 2048
        declare 0 1 0 0 55869839
        idle 276910522
        publish 0 0 1 4 1 0 138190344
        publish 0 0 1 4 0 20 325626277
        run flush 1 457421250
        disk_full 1000 679493892
        consume 1 0 0 0 183301249
        tx_commit 1 767167701
        nack 0 0 0 0 4341276
        publish 0 -1 1 4 1 0 497150158
        publish 0 0 1 4 1 0 409341077
        overlap write 0 flush 1 253887916
        cancel 0 36222597
        nack 0 0 0 1 173195439
        publish 0 0 1 1421 1 0 725790678
        ack 0 0 0 862701492
        ack 0 0 0 967699861
        ack 0 0 0 647274846
        finish read 1 884696333
        ack 0 0 0 887969621
        finish flush 1 557133807
        publish 0 0 1 4 1 0 838696728
        ack 0 0 0 322499362
        finish compact 1 107586732
        consume 2 0 1 1 998441866
        cancel 0 1008348259
        nack 0 0 0 1 579310075
        run flush 1 773073284""",
    "what is purged from the index does not come back with the move of a batch that failed": """89717 600 8192 256 8 4 1048576 0 2048 2
        declare 0 1 0 1 130576652
        declare 1 1 0 1 197469891
        idle 346815379
        sink_stage 1 1 -1 3 1024 1 0 1 619875574
        sink_stage 0 1 2 6 844 1 0 1 952314771
        sink_commit 1 0 0 1 0 785629222
        fault sync 3 24 1 771242149
        idle 588856852
        purge 0 731759025""",
    "a range that a crash has emptied is acked behind the end of its queue": """96379 600 1000 64 8 1 0 65536 2048 1024
        declare 0 1 0 0 639334144
        group_ack 5 1 109466533
        idle 863215059
        group_reserve 5 1 0 100 132268528
        publish 0 -1 1 197 1 0 33099687
        crash_within 2 power 242668817
        run flush 1 115818060
        group_ack 5 1 849053105
        delete 0 580918921
        idle 965250136
        group_ack 5 1 118093934""",
    "a move whose content a power failure took leaves the message where it was staged": """78334 600 3000 256 2 1 1048576 200 2048 5
        declare 0 1 0 1 1002371830
        sink_stage 0 0 0 1 4 1 0 1 287967756
        sink_stage 0 1 -1 17 271 1 0 0 455525535
        sink_stage 0 1 0 15 259 1 0 0 91143399
        sink_commit 0 0 0 1 200 696622308
        crash power 0 0 907743124
        sink_abort 0 366833829
        fault sync_directory 3 28 1 694090240
        sink_stage 0 1 0 17 252 1 0 1 386210880
        idle 956131436
        sink_commit 0 0 0 1 200 533837489
        idle 995916968
        crash power 0 0 744595018""",
    "a get waits for a head while its connection ends and deletes the queue": """\
2682159840 1500 1000 256 8 4 0 65536 2048 1024 1048576 4194304 67108864 33554432 2 1 \
        1 10 300 33554432 67108864 4194304 1048576 4194304 16777216 1048576 0
        declare_temporary 0 1 auto-delete 945285012
        idle 476438090
        publish 0 -1 1 1116 1 0 112444820
        run flush 1 1008597917
        finish flush 1 728568370
        page 0 0 42198555
        get 2 0 0 43385228
        consume 3 0 0 0 461252367
        drop_connection 1 749187454""",
    "the end of a torn append behind a segment that its queue has left": """\
10003392 600 3000 256 8 4 1048576 0 2048 1024 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 16777216 300 0
        declare 0 1 0 1 925127645
        declare 1 1 0 1 218391205
        declare 2 1 0 1 250466246
        declare 3 1 0 1 175793442
        idle 1020361427
        publish 0 -1 4 4 1 0 926054376
        publish 0 -1 4 4 1 0 796767339
        tx_commit 0 771637055
        stop 0 932545558
        publish 0 -1 1 4 1 0 545570083
        overlap write 0 read 1 728771964
        crash power 0 0 561092258
        purge 0 795104752
        tick 30 79500792
        idle 268408312
        crash power 0 0 570310410""",
    "a rewrite waits for acks whose batch fails": """\
11013650 600 1000 0 8 4 200 0 2048 1024 1048576 4194304 67108864 33554432 2 1 1 10 \
        300 33554432 67108864 4194304 1048576 4194304 16777216 1048576 12000
        declare 0 1 0 1 458570247
        idle 786323541
        consume 0 0 0 0 723277435
        publish 0 0 1 4 1 0 402405010
        idle 944820290
        publish 0 0 8 100 1 0 541536266
        consume 2 0 0 0 838585046
        publish 0 0 8 100 1 0 999025007
        idle 611437087
        publish 0 0 16 250 1 0 856886271
        ack 0 15 0 261367987
        ack 2 0 0 767304477
        ack 0 15 0 821358346
        ack 0 0 0 72807453
        ack 2 5 0 168113380
        ack 0 0 0 708048825
        ack 0 0 0 1045640296
        ack 2 0 0 816291150
        ack 2 0 0 754813249
        ack 0 0 0 438196032
        ack 2 0 0 1064842895
        ack 0 15 0 598466356
        ack 2 0 0 342234187
        tick 3000 898703268
        idle 556001998
        tick 3000 69101901
        idle 481779543
        ack 2 0 0 689032226
        ack 0 5 0 612117128
        ack 0 15 0 501168619
        ack 0 0 0 858369282
        sink_stage 0 1 -1 1 4 1 0 1 364829039
        run flush 1 871315795
        tick 3000 327424424
        ack 0 0 0 446699689
        fault sync 0 24 1 687391378
        sink_commit 1 0 0 1 200 902667957
        crash power 0 0 1014418227""",
    "a commit during a backup, which keeps what the store would free": """\
13032391 4096 8192 256 8 4 200 65536 2048 1024 300 1 300 33554432 2 1 1 10 300 2000 \
        0 4194304 1 2000 16777216 300 0
        declare 0 1 0 0 565241950
        declare 1 1 0 0 1067021416
        sink_stage 1 0 0 1 271 1 0 0 1021217202
        sink_commit 1 0 0 1 0 867647030
        run flush 1 775052907
        finish flush 1 217712717
        run flush 1 939773297
        sink_stage 0 0 1 8 253 1 0 0 161013121
        finish flush 1 435908752
        stop 0 864206201
        sink_stage 0 1 1 1 259 1 0 0 844865000
        sink_stage 0 0 0 8 251 1 0 0 714044096
        sink_commit 0 0 0 1 200 532855633
        run flush 1 882015386
        finish flush 1 861762763
        run flush 1 242398915
        crash power 0 0 597728168
        backup 987291391
        sink_stage 0 0 0 1 266 1 0 0 742347728
        idle 467076105
        tick 3000 926403419
        sink_stage 0 0 -1 1 4 1 0 1 187402708
        tick 3000 1014603788
        sink_commit 0 0 0 1 0 929927607
        idle 627255651""",
    "a message is rejected while its queue is deleted on a full disk": """\
14016327 600 8192 256 8 4 200 0 2048 5 1048576 4194304 67108864 33554432 2 1 1 10 300 33554432 \
        2000 1 1048576 4194304 0 1048576 0
        declare 0 1 0 1 642534218
        idle 701140262
        consume 2 0 0 0 808468418
        publish 0 0 16 250 1 0 615159468
        publish 0 0 8 4 1 0 890845771
        idle 216781377
        disk_full 0 640842481
        page 0 20 584036121
        delete 0 139840403
        nack 2 0 0 0 367033107
        run write 2 98089487
        stop 0 591646939""",
    "a commit that waits for two checkpoints to free space": """\
15015316 1500 1000 0 2 4 0 0 2048 1 300 2000 67108864 500 2 1 1 10 300 300 \
        0 4194304 2000 1 300 1048576 0
        declare 0 1 0 1 191736566
        declare 1 1 0 1 65388680
        sink_stage 0 1 1 7 4 0 0 1 48362347
        run flush 1 804157914
        overlap compact 0 write 1 252711902
        sink_stage 0 0 -1 10 4 0 0 1 696004681
        ack 0 0 0 515942774
        close_channel 0 898541300
        idle 47783042
        ack 0 0 0 357022541
        sink_stage 0 1 -1 1 4 0 0 1 645917586
        sink_stage 1 1 0 1 4 1 0 0 41385100
        sink_stage 0 1 1 1 4 1 0 1 796714329
        sink_commit 0 0 0 1 0 563837189
        sink_finish 1 1 321058303
        idle 551512313
        crash kill 0 0 1011798460
        publish 0 0 4 4 1 0 661831647
        sink_stage 0 1 1 10 4 1 0 0 764218353
        sink_commit 0 0 0 0 0 854704488
        idle 622630340
        delete 0 38499999
        sink_commit 1 0 0 1 0 379519535
        tick 3000 209526530
        idle 191689189""",
    "a group leaves a queue whose ack has failed, and reads it anew": """\
15025426 4096 8192 0 8 4 1048576 0 2048 1024 1048576 1 0 33554432 2 1 1 10 300 33554432 \
        0 2000 300 2000 0 1048576 0
        declare 0 1 0 0 507827411
        declare 1 1 0 0 832594818
        declare 2 1 0 0 591914044
        group_fetch 4 2 297340950
        idle 782594822
        publish 0 -1 10 4 1 0 699721943
        get 0 0 1 844473615
        group_reserve 4 3 1 100 1014692958
        publish 0 -1 4 4 0 0 366931056
        idle 388264015
        group_ack 4 1 945831313
        idle 91389623
        tick 60 466509115
        disk_full 100 199335947
        publish 0 0 2 4 0 0 909636181
        group_ack 4 2 819992681
        publish 0 -1 1 4 1 0 398823019
        mode 0 1 17779916
        idle 246226940
        group_ack 4 1 180598356
        idle 736375386
        group_ack 4 1 851772481""",
    "a queue that a pattern matches goes with what its last consumer had": """\
20082199 600 3000 64 8 4 200 0 2048 5 1 1 67108864 33554432 2 1 1 10 300 300 67108864 \
        300 1 1 0 300 0
        declare_temporary 0 1 auto-delete 182414478
        idle 21218284
        publish 0 -1 1 4 1 0 804588555
        group_ack 5 1 849638103
        consume 4 0 10 0 852316951
        idle 1012782821
        close_channel 4 525843604
        group_reserve 5 1 0 0 1058803904""",
    "a queue is deleted while a reserve waits that does not name it": """\
21026178 4096 8192 256 8 4 200 65536 2048 5 1048576 4194304 67108864 33554432 2 1 1 10 \
        300 33554432 67108864 4194304 1048576 4194304 16777216 1048576 0
        declare 0 1 0 0 87838950
        declare 1 1 0 0 1035394323
        idle 379899958
        publish 0 -1 1 4 1 0 368111868
        consume 0 0 3 0 387813952
        group_fetch 5 0 934031117
        consume 0 1 0 0 344510798
        idle 127850477
        publish 0 0 3 4 1 0 122311469
        group_reserve 5 1 0 100 899762306
        run read 1 366124562
        publish 0 1 1 4 1 0 951970506
        publish 0 1 1 4 1 0 301598983
        finish compact 1 774431134
        ack 0 0 0 680624686
        declare 0 1 0 1 850140787
        run write 1 770603945
        finish write 1 1067019342
        ack 0 0 0 884676259
        tx_commit 0 579004040
        tx_rollback 0 812249007
        tick 1 608954309
        ack 0 0 0 295022254
        publish 0 0 3 4 1 0 454481227
        group_reserve 5 1 1 0 905091500
        finish flush 1 578688925
        group_reserve 5 1 0 0 8557959
        tick 30 711232775
        recover 0 693066891
        delete 0 117147069
        tick 3000 714835582
        group_reserve 5 1 1 0 449428985""",
    "a group reserves what moved to the index after its batches failed": """\
21020214 1500 8192 256 16 1 0 0 2048 1024 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 16777216 300 0
        declare 0 1 0 0 89880318
        group_reserve 5 1 1 100 845488966
        idle 217296327
        publish 0 -1 1 4 1 0 137427641
        group_reserve 5 1 0 0 582456407
        publish 0 0 2 4 1 0 572832955
        publish 0 -1 1 280 1 0 479433336
        fault sync 1 28 1 58585148
        mode 0 1 692473819
        consume 3 0 0 0 170311335
        idle 949167959
        publish 0 0 16 4 1 0 869464528
        publish 0 0 16 250 1 0 652149461
        tick 3000 639500138
        ack 3 15 0 729524305
        ack 3 0 0 656233632
        idle 722534469
        group_ack 5 1 771117116
        publish 0 0 2 239 1 0 578203236
        publish 0 0 2 111 1 0 685858880
        disk_full 1000 575114563
        close_channel 3 836054050
        idle 761643104
        publish 0 0 4 250 1 0 610212484
        tick 3000 750517433
        idle 627747032
        group_reserve 5 10 1 0 934740135""",
}


def value_of(word: str) -> int | str:
    if word == "-":
        return ""
    return int(word) if word.lstrip("-").isdigit() else word


def history_of(story: str) -> History:
    first, *lines = story.splitlines()
    operations = []
    for line in lines:
        kind, *words = line.split()
        *values, operation_seed = [value_of(word) for word in words]
        assert isinstance(operation_seed, int)
        operations.append(Operation(kind, tuple(values), operation_seed))
    seed, *limits = map(int, first.split())
    return History(seed, Limits(*limits), tuple(operations))


@pytest.mark.parametrize("name", [*STORIES, *DAMAGE_STORIES])
def test_a_story_that_failed_once_holds(name: str) -> None:
    lines, violation = tell(history_of((STORIES | DAMAGE_STORIES)[name]))
    if violation is not None:
        pytest.fail("\n".join([*lines, f"=> {violation}"]))
