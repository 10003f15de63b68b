"""Stories with flipped bits, of the kind that `test_stories.py` describes."""

DAMAGE_STORIES = {
    "a damaged segment that is appended to while it is counted anew": """1073 1500 1000 256 8 4
        declare 1 1 0 1 3553891
        idle 97250640
        publish 0 1 1 4 1 0 208026061
        publish 0 -1 4 4 0 0 181663673
        idle 920402752
        flip 3 939330485
        crash kill 0 0 511937606
        publish 0 1 1 4 1 0 59675902
        get 0 1 1 892336351
        tick 300 687191717""",
    "an empty segment that a rebuilt index lists": """3193 4096 3000 256 2 4
        declare 1 1 0 1 771833374
        idle 742484873
        publish 0 1 9 4 1 0 943529471
        publish 0 -1 7 271 1 0 887192854
        publish 0 1 7 261 1 0 271081362
        idle 11438944
        publish 0 1 1 4 1 0 529635757
        crash_within 4 kill 91087704
        idle 281965239
        flip 3 875907424
        publish 0 1 1 265 1 0 1007719439
        flip 3 33665089
        fault write 0 28 2 999752473
        run write 1 1039290786
        flip 1 1029268095
        crash_within 40 kill 549910887
        flip 1 199847463
        run write 1 982406267
        idle 232557477
        publish 0 -1 1 4 1 0 588463039
        stop 0 121780112""",
    "without checkpoints, a segment of an earlier life has the seq ids of this one": """4417997 4096 1000 64 8 4 2048 512 2048
        declare 0 1 0 1 39092711
        declare 1 0 0 1 995940917
        declare 2 1 0 1 530536589
        declare 3 1 0 1 328677533
        idle 1041676523
        fault sync 0 28 6 610935981
        publish 3 -1 3 138 1 0 286635088
        tick 300 2384734
        publish 0 -1 3 72 1 0 194628228
        publish 0 -1 3 230 1 0 443617834
        stop 0 329781961
        publish 0 2 1 4 1 0 141140303
        flip 3 548004387""",
    "without checkpoints, a message comes again whose ack went with its journal file": """5513945 4096 8192 64 16 4 2048 512 2048
        declare 0 1 0 1 453979107
        declare 1 1 0 1 345972610
        idle 589510897
        publish 0 1 1 4 1 0 737947763
        get 0 1 0 291814496
        idle 383742546
        publish 0 0 1 4 1 0 376138586
        ack 0 0 0 66781030
        stop 0 58134039
        publish 0 0 1 4 1 0 508560991
        publish 0 1 1 38 1 0 223583640
        idle 70088153
        crash power 0 0 810651057
        flip 3 695214291""",
    "without checkpoints and segments, contents are where compaction has put them": """187057268 4096 3000 0 8 4 200 0 2048
        declare 3 1 0 0 1018192160
        idle 237158846
        publish 3 -1 1 261 1 0 513185195
        idle 48665480
        purge 0 975517865
        idle 983391926
        publish 0 0 1 4 1 0 112950325
        cancel 0 611824223
        nack 0 0 0 1 59525400
        cancel 0 363257498
        tx_commit 0 255754322
        run compact 1 771636528
        idle 943954257
        cancel 0 395038940
        tx_rollback 0 243663205
        publish 3 -1 2 250 1 0 805221143
        idle 790795632
        finish read 1 40294538
        idle 649563670
        publish 0 -1 2 244 1 0 913471883
        idle 575150778
        get 0 0 0 991996073
        publish 0 2 1 4 0 0 650330848
        finish flush 1 1053853518
        get 0 0 1 261759775
        publish 0 2 1 4 1 0 991066079
        idle 941796951
        idle 362751163
        crash power 0 0 125762096
        stop 0 900576377
        publish 0 -1 2 248 1 0 1016024466
        flip_now 3 108678454
        stop 0 772237555
        flip 3 248977402
        publish 0 -1 1 4 1 0 360274623
        flip_now 3 313027994
        consume 0 3 0 0 676546962""",
    "a record that goes bad after its message was loaded for a purge": """110113 600 3000 0 16 4 0 65536 2048
        declare 0 1 0 1 396326678
        declare 2 1 0 1 458844875
        idle 8539876
        group_ack 2 1 355072390
        publish 0 -1 2 1389 0 0 719269978
        publish 0 2 2 4 1 0 840055850
        stop 0 1030623566
        flip_now 3 831861238
        purge 2 238498230
        run read 1 177927710
        publish 2 2 1 4 1 0 725829571
        flip_now 1 250218268""",
    "a repair that does not find an entry, with newer messages behind it": """\
1318236954 4096 8192 256 8 4 0 200 2048 1 2000 4194304 2000 33554432 2 1 1 10 \
        33554432 67108864 4194304 1048576 1 16777216 1048576 3000
        declare 0 1 0 0 665393751
        declare 1 1 0 0 839529074
        idle 329690614
        publish 4 0 2 4 1 0 902271092
        publish 0 1 1 252 1 0 722307468
        run flush 1 440492103
        crash power 0 0 984152223
        publish 0 -1 1 251 1 0 548452219
        flip 1 157365210
        idle 587245727
        stop 0 786475102
        publish 0 -1 1 4 1 0 274960574
        publish 0 0 1 4 1 0 372436390
        consume 0 0 3 0 970509513
        publish 0 0 2 4 0 0 961856273
        tick 3000 592194988
        idle 910023993""",
    "appends behind one that found no space, twice in one segment": """\
7076923 1500 3000 64 16 4 1048576 0 2048 1 1048576 4194304 67108864 33554432 2 1 1 10 33554432 \
        67108864 4194304 1048576 4194304 0 300 12000
        declare 0 1 0 0 1037520648
        declare 1 0 0 0 832974887
        idle 607456524
        ack 0 0 0 875344917
        publish 0 -1 1 4 0 0 763723366
        get 0 0 0 588369673
        flip_now 1 764796803
        publish 3 -1 2 4 1 0 1037973142
        ack 0 0 0 538849609
        run read 1 847583692
        publish 0 1 1 4 1 0 626515680
        publish 0 1 1 4 1 0 693338679
        declare 0 1 0 0 850708803
        publish 3 -1 1 4 1 0 511317750
        ack 0 0 0 481076809
        publish 3 0 1 4 1 0 312906227
        finish write 1 183706341
        finish flush 1 400436454
        finish read 1 846667038
        publish 0 1 1 4 1 0 625147106
        publish 0 -1 1 4 0 0 142384294
        overlap write 0 write 1 568151044
        publish 0 0 1 4 0 0 359579969
        publish 0 1 2 4 1 0 983801663
        mode 1 1 861819715
        consume 0 1 0 0 294706659
        publish 0 0 8 250 1 0 39390652
        idle 61222300
        publish 0 0 4 100 1 0 589321342
        tick 3000 762401211
        idle 149909676
        tick 3000 755348266
        tick 3000 835611916
        tick 3000 126762068
        disk_full 0 909972413
        publish 0 0 4 250 1 0 499278259
        idle 273023850
        publish 0 0 8 250 1 0 225303984
        tick 3000 905301879
        idle 285254649""",
    "damage in a segment that names places, behind damage in one that does not": """\
10048956 4096 1000 256 2 4 1048576 65536 2048 2 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 16777216 1048576 0
        declare 0 1 0 1 34567592
        declare 1 1 0 1 1037825754
        idle 404160681
        publish 0 1 1 4 0 0 979912296
        publish 1 0 1 4 1 0 288079779
        publish 0 -1 1 4 1 0 84550041
        purge 0 352927484
        publish 0 0 1 4 1 0 924850744
        crash_within 16 kill 1037933638
        flip 1 506513859
        publish 2 -1 2 4 1 0 131235241
        tx_commit 0 267858406
        idle 959226485
        publish 0 -1 1 4 1 20 1027787193
        run write 5 549939447
        flip_now 1 794458706
        flip_now 1 404496663
        tick 300 42675449
        idle 264622153""",
    "damage behind a left segment whose torn end is cut off": """\
11000706 600 8192 256 8 4 200 0 2048 5 1048576 300 0 33554432 2 1 1 10 300 2000 0 4194304 \
        1048576 4194304 0 1048576 12000
        declare 2 1 0 1 961477133
        idle 950168877
        publish 0 2 2 202 1 0 721024054
        flip 3 756009783
        idle 93884467
        flip_now 3 848586010
        get 0 2 1 406949300
        idle 484568651
        crash power 0 0 1050965174
        flip_now 1 990381997
        get 0 2 1 526609436
        crash_within 16 power 269908421
        idle 685380662""",
    "a damaged segment that cannot be read at once": """\
11016083 1500 1000 256 2 1 0 0 2048 2 1048576 4194304 300 33554432 2 1 1 10 \
        300 33554432 67108864 2000 1048576 300 300 1048576 3000
        declare 0 1 0 0 585504760
        stop 0 413458061
        publish 0 0 2 4 1 0 758535871
        publish 0 0 1 4 1 0 975396679
        fault create 0 24 1 966315043
        publish 0 0 1 4 1 0 758954070
        publish 0 0 1 4 1 0 553071730
        stop 0 363678516
        consume 0 0 3 0 457307017
        flip_now 1 890689439
        fault read 3 5 1 92142431
        idle 850761943""",
    "a record whose last bytes, which are zeros, a power failure took": """\
7023194 4096 1000 256 8 4 200 200 2048 2 1048576 4194304 67108864 33554432 2 1 1 10 33554432 \
        67108864 4194304 1048576 4194304 0
        declare 0 1 0 0 886444595
        declare 1 1 0 0 662233180
        idle 957906027
        publish 1 -1 2 258 1 0 1063339733
        group_ack 1 1 262072608
        idle 1050799405
        tx_commit 1 365196067
        crash_within 4 power 317665906
        run flush 1 700298322
        publish 0 1 1 4 0 0 428444503
        mode 0 1 1021086125
        publish 0 1 4 250 1 0 508852767
        flip 3 292914868""",
    "damage after repairs that could not find everything": """\
12001065 4096 8192 256 16 1 200 200 2048 5 1048576 4194304 0 33554432 2 1 1 10 \
        300 2000 67108864 2000 2000 1 0 300 3000
        declare 0 1 0 0 123753551
        declare 1 1 0 0 982281856
        idle 200310776
        crash_within 8 power 880342156
        publish 0 -1 2 39 1 0 752553691
        group_fetch 1 8 483779313
        idle 618621391
        publish 0 -1 1 4 1 0 818688016
        flip 3 890503464
        backup 481650097
        delete 1 725700593
        idle 620586555
        flip_now 1 857242194
        tick 3000 1049199344
        idle 260280600
        tick 3000 205768123
        backup_copy 541722030
        idle 353302662
        flip 3 738749661
        crash power 0 0 181003921
        publish 0 0 1 4 1 0 249311225
        get 0 0 0 840881991
        flip_now 1 894863551""",
    "a segment that a repair has made shorter than the checkpoint says is rewritten": """\
15020128 600 3000 256 16 1 200 65536 2048 1024 1048576 4194304 67108864 33554432 2 1 1 10 300 33554432 \
        67108864 4194304 1048576 4194304 0 1048576 12000
        declare 0 1 0 0 581220252
        declare 1 1 0 0 73710656
        declare 2 1 0 0 907148597
        declare 3 1 0 0 938400560
        flip 3 399012214
        idle 832909080
        publish 0 0 3 268 1 0 337953405
        publish 0 -1 1 266 1 0 459086779
        publish 0 -1 4 245 1 0 245929310
        tick 3000 636488000
        run flush 1 19307388
        tick 3000 374606550
        fault sync 0 24 6 590877295
        disk_full 1000 354041230
        idle 234635163
        publish 0 1 3 4 1 0 792932557
        publish 0 2 4 250 1 0 197251316
        publish 0 3 3 254 1 0 602252829
        publish 0 0 1 266 1 0 259877698
        publish 0 1 1 243 1 0 976748992
        fault create 0 28 1 969766965
        disk_free 690506900
        tick 300 1012050438
        publish 0 0 3 269 1 0 259477269
        fault open 0 28 1 912178047
        publish 0 1 4 268 1 0 884209476
        publish 0 2 3 252 1 0 850088221
        idle 247919318
        tick 300 455538435
        publish 0 1 2 246 1 0 306222329
        publish 0 1 3 264 1 0 618598913
        stop 0 471094295
        publish 0 -1 1 254 1 0 221778605
        crash_within 16 kill 304906922
        publish 0 1 8 100 1 0 853413337
        idle 937561687
        consume 0 1 3 0 197872641
        idle 985288769""",
    "a load finds its messages before the place where the file is cut off": """\
16002699 1500 1000 256 16 1 0 200 2048 2 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 0 1048576 3000
        declare 0 1 0 0 687488091
        idle 365319396
        publish 0 0 2 269 1 0 421023988
        run flush 1 955962377
        consume 0 0 3 0 790087642
        publish 0 0 4 253 1 0 876418639
        consume 3 0 0 0 142581800
        flip_now 1 588939851
        consume 0 0 3 1 378589804
        ack 0 0 0 875773136
        publish 0 0 4 251 1 0 769814983
        consume 3 0 0 0 148320024
        publish 0 0 16 250 1 0 506098625
        idle 162605534
        ack 3 0 0 124696156
        ack 3 0 0 295031447
        ack 3 0 0 723803711
        ack 2 0 0 12996675
        ack 3 0 0 765601979
        ack 0 0 0 1058536788
        ack 3 0 0 4074636
        ack 1 0 0 448677249
        ack 2 0 0 642217404
        ack 1 0 0 455595229
        ack 3 0 0 840354064
        ack 1 0 0 320895779
        ack 1 0 0 133602376
        ack 2 0 0 939211729
        ack 3 0 0 628973132
        ack 2 0 0 371090545
        ack 3 0 0 577588134
        ack 2 0 0 897434502
        ack 3 0 0 321232067
        ack 3 0 0 282495975
        ack 1 0 0 471626526
        ack 1 0 0 818096429
        ack 3 0 0 720906943
        ack 3 0 0 805996652
        ack 3 0 0 561973243
        ack 3 0 0 441868589
        ack 3 0 0 972303942
        tick 3000 782856119
        idle 568736646
        tick 3000 846140470
        idle 242703867
        flip_now 1 860654480
        crash power 0 0 987110846
        publish 0 -1 3 266 1 0 42242185
        consume 0 0 1 0 581206632
        idle 1029094124""",
    "after a start, an append waits until the end of a repaired file is found": """\
15038408 600 3000 64 16 1 0 200 2048 5 2000 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1 300 300 1048576 3000
        declare 1 1 0 1 472053410
        declare 2 1 0 1 743296996
        declare 3 1 0 1 47353243
        idle 821298949
        publish 0 1 4 4 0 0 1011118589
        publish 0 -1 3 4 0 0 767861088
        publish 0 -1 3 4 0 0 465982532
        fault create 0 5 1 838514630
        publish 0 3 3 4 1 0 840897833
        fault rename 0 28 1 294017724
        idle 1057944983
        publish 4 3 3 4 1 0 49147418
        declare 0 1 0 1 162072477
        crash_within 8 kill 950371555
        flip 3 45870363
        tick 3000 401563882
        idle 94178614
        publish 0 3 2 4 0 0 347903027
        publish 3 3 4 4 1 0 558147959
        idle 165214793
        publish 0 2 1 4 1 0 271092101
        tick 3000 643180620
        flip_now 3 936573154
        consume 0 3 0 0 6108971""",
    "a queue is deleted after a flipped bit took its message": """\
21017870 1500 3000 64 8 4 200 65536 2048 1 1048576 2000 67108864 3000 2 1 1 10 300 \
        33554432 67108864 300 1 4194304 300 1048576 0
        declare 3 1 0 1 148269705
        publish 1 3 1 133 0 0 1006653020
        tx_commit 1 208390519
        fault rename 0 24 1 519939738
        idle 544828231
        flip_now 1 71745286
        consume 0 3 0 0 40592432
        group_fetch 5 8 612360660
        idle 493988010
        delete 3 527506458
        group_reserve 5 1 1 0 977804437""",
    "a repair that cannot read its segment once": """\
23009189 4096 8192 256 8 1 200 0 2048 2 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 16777216 300 0
        declare 0 1 0 1 244048369
        declare 1 1 0 1 722189284
        idle 800890275
        publish 0 -1 7 225 1 0 603007254
        flip 1 600488960
        publish 4 -1 7 281 1 0 985253402
        publish 4 1 10 244 1 0 865769290
        stop 0 882631212
        fault read 3 5 1 572709342
        consume 0 1 10 0 472413985
        consume 0 0 0 0 602196281
        idle 419219826""",
    "a failed batch retracted, its messages indexed, both checkpoints damaged": """\
23027408 600 3000 256 8 4 200 0 2048 1024 1048576 4194304 67108864 33554432 2 1 1 10 300 \
        33554432 67108864 4194304 1048576 4194304 300 1048576 0
        declare 0 1 0 1 634658968
        declare 1 1 0 1 951972273
        idle 974815259
        publish 0 1 3 345 1 0 294266793
        publish 0 -1 3 946 1 0 309722498
        fault sync_directory 3 5 1 161365287
        consume 0 1 0 0 685866537
        idle 842471731
        publish 0 0 1 4 1 0 194239492
        publish 0 1 8 250 1 0 497767507
        publish 0 0 16 100 1 0 947505168
        tick 3000 265322426
        idle 133275190
        tick 3000 328086382
        idle 857265716
        crash power 0 0 219366030
        delete 1 817272327
        publish 1 0 1 701 1 0 330643996
        flip 3 1023742536
        run flush 1 416983857
        tx_commit 1 782938901
        crash_within 0 power 994957624
        idle 1016569872""",
}
