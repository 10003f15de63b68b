"""Facts about storing messages, with evidence; `test_storage_facts.py` says how to read them."""

OPEN: set[str] = set()

FACTS = """
S1 | An exchange is as durable as its declaration says | broker.channel.topology:exchange_declare
    protocol/test_exchanges.py::test_inequivalent
    kill/test_restart.py::test_what_is_not_durable_is_gone
    topology/test_declarables.py::test_s1_exchanges_are_durable_and_stay_unless_declared_otherwise
S2 | A queue is as durable as its declaration says; an empty name asks for a generated one
    | broker.channel.topology:queue_declare protocol/test_queues.py::test_server_named
    protocol/test_queues.py::test_good_argument
    topology/test_declarables.py::test_s2_queues_are_durable_shared_and_stay_unless_declared_otherwise
S3 | Some clients publish persistent messages by default | topology.messages:MessageProperties
    topology/test_declarables.py::test_s3_messages_are_persistent_with_priority_0_unless_built_otherwise
S4 | Each message says whether it is persistent | broker.content.properties:inspect_properties
    protocol/test_publish.py::test_unknown_delivery_mode
S5 | A restart removes everything that is not durable
    | kill/test_restart.py::test_what_is_not_durable_is_gone
S6 | Durable exchanges come back with all their properties | broker.definitions.metadata:PutExchange
    broker/definitions/test_metadata_sqlite.py::test_metadata_comes_back_as_it_was_written
S7 | Durable queues come back with all their properties | broker.definitions.metadata:PutQueue
    broker/definitions/test_metadata_sqlite.py::test_metadata_comes_back_as_it_was_written
    broker/definitions/test_metadata_sqlite.py::test_metadata_is_synced_with_each_commit
S8 | An exclusive queue ends with its connection
    | protocol/test_queues.py::test_exclusive_queues_are_never_durable
    protocol/test_clean_up.py::test_exclusive_queues_go_with_a_lost_connection
    kill/test_restart.py::test_what_is_not_durable_is_gone
S9 | A binding is stored when both its ends are durable | routing.exchange:Binding.is_durable
    broker/definitions/test_durable.py::test_s9_a_binding_is_stored_when_both_its_ends_are
    kill/test_restart.py::test_what_is_not_durable_is_gone
S10 | A message survives only if the queue is durable and the message persistent
    | queues.queue:Queue.publish kill/test_restart.py::test_what_is_not_durable_is_gone
S11 | After a restart clients continue without declaring anything again
    | kill/test_sigkill.py::test_killed_at_random_moments
    interop/test_aio_pika.py::test_robust_connection_comes_back
S12 | A message is on disk before it is confirmed | store.journal.journal:Journal.on_done
    protocol/test_confirms.py::test_a_persistent_message_is_confirmed_by_the_commit_only
S13 | Only messages that matter should be persistent | argued: advice for users; docs/benchmarks.md
    has the cost
S14 | Written data are not yet synced data | store.file_system:FileHandle
    store.disk.flusher:BatchFlusher
    store/disk/test_flusher.py::test_a_failing_call_fails_the_batch_and_the_next_one_succeeds
    simulator/test_simulated_file_system.py::test_an_unsynced_write_is_kept_dropped_or_torn
    simulator/test_planted_bugs.py::test_a_planted_bug_is_found
S15 | A single copy is a single point of failure | argued: replication is not the store's business
S16 | A message is written for one of two reasons: persistence or memory
    | queues.queue:Queue.publish queues.backing.paging:PageStep
    queues/backing/test_queue_paging.py::test_large_persistent_messages_become_gamma_and_transient_ones_beta
S17 | A buffer of 1 MiB stands in front of the journal file | store.journal.journal:BUFFER_BYTES
    store/test_documented_limits.py::test_limits_are_those_of_the_code
    store/journal/test_due.py::test_s17_a_full_buffer_is_due_at_once
S18 | The buffer is flushed after at most 25 ms | store.journal.journal:FLUSH_INTERVAL_MS
    server.vhost_driver:VhostDriver.end_turn
    store/test_documented_limits.py::test_limits_are_those_of_the_code
    store/journal/test_due.py::test_s18_the_oldest_entry_waits_for_25_ms
    server/test_idle_flush.py::test_a_publish_behind_another_waits_for_the_timer
S19 | The buffer is flushed at once when the node has nothing else to do
    | store.journal.journal:Journal.is_due server.vhost_driver:VhostDriver.on_idle
    store/journal/test_due.py::test_s19_nobody_who_waits_waits_for_the_tick
    store/journal/test_due.py::test_s19_an_idle_node_keeps_back_what_follows_a_write_closely
    server/test_idle_flush.py::test_a_publish_to_an_idle_node_waits_for_no_timer
S20 | Persistent messages reach the kernel | store.disk.flusher:BatchFlusher.flush
    store/disk/test_flusher.py::test_what_is_written_is_what_was_sealed
S21 | Transient messages are paged too, and a start removes them | queues.backing.paging:PageStep
    store.disk.store_reader:read_store
    store/disk/test_index_rebuild.py::test_transient_messages_of_an_earlier_life_do_not_count
S22 | Persistent messages stay in memory too, and are the first to leave it
    | queues.entry:Entry.is_on_disk queues.backing.paging:PageStep._push_alphas
    queues/backing/test_queue_paging.py::test_large_persistent_messages_become_gamma_and_transient_ones_beta
S23 | A confirm says that the message is durable | store.journal.journal:Journal.on_done
    protocol/test_confirms.py::test_a_persistent_message_is_confirmed_by_the_commit_only
    simulator/test_planted_bugs.py::test_a_planted_bug_is_found
S24 | Timers drive syncs, rates, and the expiry of queues and messages
    | server.vhost_driver:VhostDriver.end_turn server.node:Node._tick_expiry
    queues.memory.monitor:MemoryMonitor.tick protocol/test_expiry.py::test_an_unused_queue_expires
S25 | One store keeps the contents of all queues of a vhost, by id
    | store.contents.store:ContentStore
    store/contents/test_store.py::test_a_fan_out_is_stored_once_and_removed_last
S26 | Persistent and transient contents have a store each; a start wipes the transient one
    | store.model.layout:TRANSIENT_NAME
    store/index/test_segments.py::test_transient_messages_are_paged_and_do_not_outlive_the_node
S27 | Content files are numbered from 0
    | store/contents/test_store.py::test_files_fill_up_to_the_limit_and_ids_ascend
S28 | A content file has 16 MiB | store.contents.store:FILE_SIZE_LIMIT
    store/contents/test_store.py::test_files_fill_up_to_the_limit_and_ids_ascend
S29 | Content files are only appended to | store.contents.store:ContentStore.add
    store/contents/test_store.py::test_a_failed_write_gives_its_file_up
S30 | Tables in memory say which content is where | store.contents.file:ContentFile
    store/contents/test_machine.py::TestContentMachine
S31 | A read goes to the content file directly | store.index.content_load:ContentLoad
    store/contents/test_compaction.py::test_readers_do_not_wait_for_compaction
S32 | Removing a content changes the accounts only | store.contents.store:ContentStore.release
    store/contents/test_machine.py::TestContentMachine
S33 | A content file without a valid content is deleted
    | store.contents.store:ContentStore._drop_if_dead
    store/contents/test_store.py::test_a_file_goes_with_its_last_content_and_the_current_one_stays
S34 | Compaction needs more than half garbage, three files, and a pair that fits into one
    | store.contents.store:ContentStore.pick_compaction
    store/contents/test_compaction.py::test_compaction_waits_for_garbage_and_files
S35 | Compaction merges neighbours only
    | store/contents/test_compaction.py::test_the_neighbours_with_most_garbage_become_one_file
S36 | A merge takes its steps in a fixed order | store.contents.scan:compact_contents
    store/disk/test_job_runner.py::test_any_call_of_a_compaction_fails
    store/contents/test_compaction.py::test_the_neighbours_with_most_garbage_become_one_file
S37 | All queues share one content, whose references are counted
    | store/contents/test_store.py::test_a_fan_out_is_stored_once_and_removed_last
S38 | A publish adds a message to the queue, an ack removes it
    | store.journal.journal:Journal.append
    store.journal.journal:Journal.settle store/journal/test_machine.py::TestJournalMachine
S39 | Each queue has an index | store.model.queue_index:QueueIndex
    store/test_documented_format.py::test_a_segment
S40 | An index consists of segments of 16384 positions, numbered from 0
    | store.model.queue_index:SEGMENT_ENTRIES store.model.queue_index:QueueIndex.segment_for_append
    store/index/test_segments.py::test_a_segment_dies_while_it_is_loaded
    store/test_documented_limits.py::test_limits_are_those_of_the_code
S41 | A segment that is read stays in memory | argued: here a load reads as much as it needs and
    keeps nothing else (store.index.load:IndexLoad)
S42 | A summary of each segment is in memory | store.model.queue_index:Segment
    store/index/test_segments.py::test_a_segment_goes_when_all_of_it_is_settled
S43 | Small messages are in the index, large ones in the content store
    | store.journal.message_writer:MessageWriter.write
    store/index/test_segments.py::test_the_embed_threshold_may_change_between_starts
    server/test_config.py::test_sizes_have_the_units_of_rabbitmq
    store/contents/test_embedding.py::test_s43_messages_below_the_threshold_are_embedded
S44 | A higher threshold costs memory | argued: it does not here, since no segment stays in memory
S45 | A small message costs one write | store.journal.message_writer:MessageWriter.write
    store/contents/test_embedding.py::test_s43_messages_below_the_threshold_are_embedded
S46 | RabbitMQ before 3.7 has another layout of directories | argued: imports read directories since
    3.7 only; an older node has to be upgraded first
S47 | RabbitMQ since 3.7 has the directories that imports read
    | tables/rabbitmq/test_real_directories.py::test_every_message_is_there_in_order
S48 | A queue has a protocol part and an engine | argued: a matter of structure, queues.queue:Queue
    and queues.backing.variable_queue:VariableQueue
S49 | A message goes straight to a consumer when none waits before it | queues.queue:Queue.publish
    queues/backing/test_queue_paging.py::test_t63_direct_delivery
    queues/test_queue_machine.py::TestQueueMachine
S50 | An alpha has its content and its position in memory | queues.entry:ALPHA
    queues/test_queue_machine.py::TestQueueMachine
S51 | A beta has its position in memory and its content on disk | queues.entry:BETA
    queues/test_queue_machine.py::TestQueueMachine
S52 | A gamma has its content on disk, and its position both in memory and on disk
    | queues.entry:GAMMA queues/test_queue_machine.py::TestQueueMachine
S53 | A delta is on disk only | queues.backing.delta:Delta
    queues/test_queue_machine.py::TestQueueMachine
S54 | Persistent messages are on disk in every form | queues.backing.paging:PageStep._may_push
    store.journal.journal:Journal queues/test_queue_machine.py::TestQueueMachine
S55 | Not every message passes through every form | queues/test_queue_machine.py::TestQueueMachine
S56 | The parts of a queue are q1, q2, delta, q3 and q4
    | queues.backing.variable_queue:VariableQueue
    queues.backing.variable_queue:VariableQueue.check queues/test_queue_machine.py::TestQueueMachine
S57 | Messages go from memory to disk and back to memory
    | queues/test_queue_machine.py::TestQueueMachine
S58 | A queue whose consumers keep up stays alpha
    | queues.backing.queue_memory:QueueMemory.expect_paging
    store/test_recovery.py::test_a_journal_that_keeps_up_writes_nothing
S59 | target_ram_count follows from the rates; without memory pressure there is none
    | queues.backing.queue_memory:QueueMemory.set_duration
    queues/memory/test_monitor.py::test_the_worked_example_to_the_target_of_a_queue
S60 | Unacked messages count; the count is compared with the target after each operation
    | queues.backing.queue_memory:QueueMemory.ram_count
    queues.backing.paged_queue:PagedQueue.run_slice
    queues/backing/test_queue_unacked.py::test_t54_unacked_messages_leave_memory_and_come_back
S61 | A publish goes to q4 when q3 and delta are empty, else to q1
    | queues.backing.variable_queue:VariableQueue.append
    queues/test_queue_machine.py::TestQueueMachine
S62 | Messages of q4 move to the old end of q3, youngest first
    | queues.backing.variable_queue:VariableQueue.push_q4
    queues.backing.paging:PageStep._push_alphas
    queues/backing/test_queue_paging.py::test_large_persistent_messages_become_gamma_and_transient_ones_beta
    queues/backing/test_queue_paging.py::test_alphas_sink_from_q1_oldest_first_then_from_q4_youngest_first
S63 | Messages of q3 move to delta, youngest first; its oldest stays
    | queues.backing.paging:PageStep._push_old
    queues/backing/test_queue_paging.py::test_c7_the_oldest_of_q3_stays
S64 | Messages of q1 move to q2 or q3, before those of q4 move
    | queues.backing.variable_queue:VariableQueue.push_q1
    queues.backing.paging:PageStep._push_alphas
    queues/backing/test_queue_paging.py::test_alphas_sink_from_q1_oldest_first_then_from_q4_youngest_first
S65 | permitted_beta_count bounds the betas and gammas | queues.backing.paging:permitted_beta_count
    queues/backing/test_paging.py::test_permitted_betas
S66 | Messages move to delta in batches, from q3 first, then from q2
    | queues.backing.paging:PageStep._push_middle
    queues/backing/test_queue_paging.py::test_s66_only_lumps_go_to_delta
S67 | A bound limits the writes under way | queues.turn:TURN_STEPS
    store.index.segment_files:SegmentFiles.is_behind
    queues/backing/test_queue_paging.py::test_a_turn_pages_a_bounded_number_of_messages_and_more_than_came_in
    queues/backing/test_queue_paging.py::test_a_disk_that_is_behind_is_given_no_more
S68 | The middle of a queue goes to disk, in batches | queues.backing.paging:PageStep._push_middle
    queues/backing/test_queue_paging.py::test_a_batch_that_is_cut_goes_to_delta_to_its_end
S69 | A queue's target is the desired duration times its rates
    | queues.memory.monitor:desired_duration
    queues/memory/test_monitor.py::test_the_desired_duration
S70 | Consumers take from q4, then from q3 | queues.backing.variable_queue:VariableQueue.fetch
    queues/test_queue_machine.py::TestQueueMachine
S71 | q1 becomes q4 when q3 and delta are empty
    | queues.backing.variable_queue:VariableQueue._keep_shape
    queues/backing/test_variable_queue.py::test_taking_the_last_of_q3_makes_q1_the_head
S72 | A batch of delta is loaded when q3 is empty
    | queues.backing.variable_queue:VariableQueue.accept
    queues.backing.loading:ReadAhead
    queues/backing/test_variable_queue.py::test_an_emptied_delta_hands_on_to_q2
S73 | If q3 is empty, so is everything behind it | queues.backing.variable_queue:VariableQueue.check
    queues/test_queue_machine.py::TestQueueMachine
S74 | A queue has one of two modes, chosen by an argument | queues.arguments:parse_arguments
    protocol/test_queues.py::test_bad_argument
S75 | A lazy queue writes messages to disk at once and reads them when they are consumed
    | queues.backing.paging:PageStep.page_lazy queues/test_queue_machine.py::TestQueueMachine
    kill/test_mixed_load.py::test_killed_under_mixed_load
S76 | A restart removes the transient messages of a lazy queue
    | store.index.queue_store:QueueStore._is_lasting
    store/index/test_segments.py::test_transient_messages_are_paged_and_do_not_outlive_the_node
S77 | Paging must not block | queues.turn:TurnShares.run_slices queues.backing.paging:PageStep
    queues/backing/test_queue_paging.py::test_w19_paging_goes_in_slices_and_other_queues_have_their_turn
S78 | A lazy queue of 10,000,000 messages takes 1.5 MB of memory | bench.backlog:measure
    queues/backing/test_queue_paging.py::test_s75_lazy_keeps_nothing_without_consumers_and_a_little_with_one
S79 | A backlog slows a queue down | bench.backlog:measure
    queues.backing.read_ahead:read_ahead_of_consumers
    queues/backing/test_queue_paging.py::test_the_next_batch_is_read_before_the_last_one_is_used_up
S80 | Prefetch, multiple acks and flow control bound the load
    | protocol/test_qos.py::test_per_consumer_limit_is_exact protocol/test_settle.py::test_multiple
    broker/flow/test_disk_flow.py::test_who_publishes_to_a_disk_that_lags_is_stopped_until_half_is_written
S81 | Recovery works after any kind of end | store.disk.store_reader:read_store
    simulator/test_histories.py::test_the_fixed_seeds_hold
    store/model/test_epochs.py::test_an_epoch_outlives_the_journal_file_that_it_was_written_to
    store/model/test_epochs.py::test_the_epoch_of_a_failed_batch_is_written_again
S82 | A store can be backed up and restored
    | kill/test_backup.py::test_what_was_confirmed_before_a_backup_is_in_it
    kill/test_backup.py::test_a_restore_looks_before_it_writes
S83 | The memory monitor bounds the memory of all queues | queues.memory.monitor:MemoryMonitor
    queues/memory/test_monitor.py::test_a_flood_stays_at_the_threshold

W1 | A message is confirmed before it is synced
    | simulator/test_planted_bugs.py::test_a_planted_bug_is_found
    store/disk/test_flusher.py::test_any_call_of_a_batch_fails
W2 | Records have no checksums | store.records.record:body_is_valid
    store/test_recovery.py::test_every_flipped_bit_costs_one_message_at_most
    store/contents/test_scan.py::test_every_damaged_byte_costs_one_content
W3 | Records do not describe themselves
    | store/test_documented_format.py::test_messages_in_the_journal
    store/test_recovery.py::test_bodies_that_look_like_records
W4 | Recovery reads everything | store.disk.store_reader:read_store bench.backlog:measure
    store/index/test_segments.py::test_a_start_reads_the_checkpoint_and_the_journal_behind_it
W5 | Recovery trusts all of a file or none of it | store.index.repair:DamagedSegments.report
    store/disk/test_index_rebuild.py::test_damage_that_nobody_can_mend_costs_its_own_message
W6 | A wrong mark of a clean stop is believed | store.records.checkpoint:decode_checkpoint
    store/disk/test_checkpoint_job.py::test_power_fails_in_any_call_of_a_checkpoint
W7 | Replay crashes on damaged data | store/test_recovery.py::test_any_bytes_give_a_state
    store/test_recovery.py::test_valid_records_with_contents_of_nonsense
W8 | Definitions and messages are in two stores with a sync each | store.journal.journal:Journal
    broker/definitions/test_durable.py::test_the_second_to_ask_waits_for_the_disk_as_the_first_does
W9 | Compaction locks readers out
    | store/contents/test_compaction.py::test_readers_do_not_wait_for_compaction
    store/index/test_segments.py::test_a_segment_goes_when_all_of_it_is_settled
W10 | Compaction falls behind; here its debt is shown, and publishers wait until it is paid
    | store.figures:StoreFigures.debt_bytes store.figures:debt_to_pay
    broker.flow.disk_flow:DEBT_STOP_BYTES
    broker/flow/test_disk_flow.py::test_a_store_in_debt_stops_publishers_until_it_is_paid
    broker/flow/test_disk_flow.py::test_debt_that_grows_while_the_disk_does_not_stops_nobody
    broker/flow/test_disk_flow.py::test_nobody_waits_for_what_the_store_does_not_give_back
    store/contents/test_compaction.py::test_the_garbage_stays_bounded_with_a_slow_consumer
    admin/test_figures.py::test_debt_is_what_exceeds_twice_what_is_alive
W11 | Reference counts are not durable
    | store/contents/test_recovery.py::test_references_after_recovery
    simulator/test_planted_bugs.py::test_a_planted_bug_is_found
W12 | Each stored message takes memory | store.contents.file:ContentFile
    store.model.queue_index:QueueIndex
    kill/test_store_on_disk.py::test_a_start_reads_no_bodies_and_takes_no_memory_for_them
W13 | Embedded messages cost memory | argued: an index is not in memory here, see S44
W14 | A message that a length limit drops is written first | queues.queue:Queue.publish
    queues/test_limits_before_the_disk.py::test_only_what_stays_is_written
W15 | Paging blocks the queue and bloats memory | queues.turn:TurnShares.run_slices
    queues/memory/test_monitor.py::test_a_flood_stays_at_the_threshold
W16 | Idle queues are woken | queues/memory/test_monitor.py::test_idle_queues_are_not_touched
W17 | A start loads lazy queues into memory | queues.backing.paged_queue:PagedQueue.restore_delta
    broker.vhost.vhost:Vhost._restore_backing
    kill/test_store_on_disk.py::test_a_start_reads_no_bodies_and_takes_no_memory_for_them
W18 | The messages of a single segment are never paged
    | queues.memory.account:MemoryAccount.ahead_room
    queues/backing/test_paging.py::test_small_messages_of_one_segment_are_paged_too
W19 | Batches have no limit | queues.backing.purging:Purge.settle_slice
    queues.queue:Queue.drop_expired_head
    queues.readers.group:GROUP_SLICE_MESSAGES
    queues/backing/test_queue_paging.py::test_w19_paging_goes_in_slices_and_other_queues_have_their_turn
    queues/backing/test_queue_unacked.py::test_w19_a_purge_takes_turns
    queues/backing/test_queue_paging.py::test_t56_expired_messages_are_dropped_in_slices
W20 | Damage stops the whole vhost | kill/test_restart.py::test_damage_costs_what_is_damaged
    store/disk/test_index_rebuild.py::test_what_is_not_ours_is_kept
W21 | A full disk stops the broker | store.disk.space_reserve:SpaceReserve
    kill/test_failing_disk.py::test_files_may_not_grow
    store.disk.roomy_file:write_roomy
    kill/test_full_disk.py::test_at_zero_bytes_free
    cluster/nodes/test_full_disk.py::test_starts_on_a_full_disk
    store/disk/test_flusher.py::test_one_that_cannot_be_stored_is_refused_alone
    store/disk/test_space_reserve.py::test_a_commit_that_finds_no_space_leaves_room_for_the_next
W22 | The acks of a blocked connection wait
    | protocol/test_blocked.py::test_what_a_blocked_connection_settles_is_settled
W23 | A start deletes data that it does not know
    | store/disk/test_files.py::test_directories_and_links_are_put_aside
    store/disk/test_index_rebuild.py::test_what_is_not_ours_is_kept
    kill/test_restart.py::test_lost_definitions_do_not_lose_messages
W24 | One live message keeps a whole file
    | store.upkeep.segment_rewrite:SegmentRewriter.find_segments
    store/disk/test_job_runner.py::test_a_rewritten_segment_has_what_was_not_settled
    store/index/test_segments.py::test_a_segment_with_little_alive_is_rewritten
    store/index/test_segments.py::test_all_segments_with_little_alive_are_rewritten
    store/contents/test_compaction.py::test_where_no_pair_fits_one_file_is_copied_alone
W25 | Only a stopped node can be backed up | store.upkeep.backup_pins:BackupPins
    kill/test_backup.py::test_what_was_confirmed_before_a_backup_is_in_it
W26 | Allocated space is taken for data | store/test_recovery.py::test_junk_behind_the_last_record
    simulator/test_simulated_file_system.py::test_space_that_was_allocated_reads_as_zeros
W27 | A failed sync is repeated and its success believed
    | store/disk/test_checkpoint_job.py::test_a_sync_that_failed_is_not_forgotten
    store/disk/test_flusher.py::test_a_failing_call_fails_the_batch_and_the_next_one_succeeds
    store/contents/test_store.py::test_a_failed_write_gives_its_file_up
    store/journal/test_machine.py::test_a_retraction_is_written_again
    store/index/test_segments.py::test_what_moves_to_the_index_after_its_batch_failed_survives_with_a_checkpoint
W28 | A file's name is not durable when the file is
    | store/disk/test_files.py::test_directories_are_made_with_their_parents
    store/disk/test_flusher.py::test_contents_are_durable_before_the_journal_is_written
    simulator/test_simulated_file_system.py::test_a_name_needs_its_directory_synced
    store/disk/test_checkpoint_job.py::test_power_fails_in_any_call_of_a_checkpoint
W29 | A crash redelivers every message | queues.backing.paged_queue:PagedQueue.restore
    kill/test_restart.py::test_a_clean_stop_remembers_what_was_delivered
    store/test_recovery.py::test_the_mark_of_a_clean_stop_ends_with_the_next_start
    queues/test_delivered_flags.py::TestDeliveredFlags
    store/model/test_delivered.py::test_each_live_message_is_in_the_set_or_not

G1 | A confirmed message survives | kill/test_sigkill.py::test_killed_at_random_moments
    simulator/test_histories.py::test_the_fixed_seeds_hold spark/test_exactly_once.py::TestStream
    kill/test_mixed_load.py::test_killed_under_mixed_load
G2 | A message whose ack is synced does not come back
    | kill/test_sigkill.py::test_killed_at_random_moments
    store/journal/test_machine.py::TestJournalMachine
    simulator/test_histories.py::test_the_fixed_seeds_hold
G3 | Messages keep their order, and a requeued message returns to its place
    | protocol/test_settle.py::test_requeue_to_the_original_place
    queues/backing/test_queue_unacked.py::test_t53_a_block_that_comes_back_in_reverse_keeps_its_order
    queues/test_queue_machine.py::TestQueueMachine
G4 | No damaged message is delivered | kill/test_restart.py::test_damage_costs_what_is_damaged
    store/contents/test_compaction.py::test_damage_costs_one_content
    simulator/test_histories.py::test_the_fixed_seeds_hold
G5 | A start reads at most what no checkpoint covers | store.disk.store_reader:read_store
    bench.workloads:run_restart
    store/index/test_segments.py::test_a_start_reads_the_checkpoint_and_the_journal_behind_it
G6 | No queue stalls another | queues.turn:TurnShares.run_slices bench.interference:measure
    queues/backing/test_queue_paging.py::test_w19_paging_goes_in_slices_and_other_queues_have_their_turn
G7 | Memory is bounded whatever the backlog | bench.backlog:measure
    queues/memory/test_monitor.py::test_a_flood_stays_at_the_threshold
G8 | The disk holds at most twice the live bytes, plus 1 GiB | store.upkeep.debt:Debt
    store.upkeep.segment_rewrite:SegmentRewriter
    store/upkeep/test_disk_use.py::test_g8_segments_of_which_less_than_half_is_alive
    store/upkeep/test_disk_use.py::test_g8_while_messages_come_and_go
    store/contents/test_compaction.py::test_the_garbage_stays_bounded_with_a_slow_consumer
G9 | Limits cause back-pressure
    | kill/test_failing_disk.py::test_publishes_are_nacked_and_the_node_serves_on
    server/test_limits.py::test_a_node_that_fills_up_and_is_emptied_again
    hostile/test_strangers.py::test_more_connections_than_descriptors
G10 | Files say what they are; no data are erased | store.records.record:file_header_is_valid
    store/disk/test_files.py::test_a_strange_file_among_ours_is_put_aside_whole
    store/contents/test_recovery.py::test_when_a_file_is_missing_nothing_is_taken_for_garbage
    store/model/test_epochs.py::test_files_of_a_later_version_are_refused_and_not_touched
G11 | Backups are taken online, restores verified; check and salvage exist
    | offline.check:check_directory offline.salvage:salvage
    kill/test_backup.py::test_what_was_confirmed_before_a_backup_is_in_it
    kill/test_backup.py::test_a_store_that_had_problems_is_restored_on_demand
G12 | RabbitMQ's files can be imported
    | tables/rabbitmq/test_real_directories.py::test_every_message_is_there_in_order
G13 | Operators can see a queue's parts, forms, targets and modes
    | queues.queue_figures:QueueFigures admin.status:queue_status
    admin/test_figures.py::test_figures_are_those_of_a_model cli/test_status.py::test_queues
    server/test_config.py::test_sizes_have_the_units_of_rabbitmq

T1 | The node is killed at any point of a publish
    | kill/test_sigkill.py::test_killed_at_random_moments
    simulator/test_histories.py::test_the_fixed_seeds_hold
T2 | The node is killed during acks, requeues, purges, declares and deletes
    | kill/test_mixed_load.py::test_killed_under_mixed_load
    simulator/test_histories.py::test_the_fixed_seeds_hold
T3 | The node is killed during a roll, a checkpoint or a rename
    | store/disk/test_checkpoint_job.py::test_power_fails_in_any_call_of_a_checkpoint
    store/disk/test_flusher.py::test_any_call_of_a_batch_fails
    simulator/test_histories.py::test_the_fixed_seeds_hold
T4 | The node is killed in each step of a merge
    | store/disk/test_job_runner.py::test_any_call_of_a_compaction_fails
    store/contents/test_recovery.py::test_a_crash_during_a_compaction
    store/contents/test_recovery.py::test_a_crash_behind_a_compaction
T5 | The node is killed during recovery, again and again
    | kill/test_restart.py::test_killed_while_it_starts
    simulator/test_histories.py::test_the_fixed_seeds_hold
T6 | A crash is followed by two clean stops | kill/test_restart.py::test_crash_then_clean_stops
    kill/test_store_on_disk.py::test_crash_clean_stop_clean_stop
T7 | One queue crashes | argued: queues are objects of one process and do not crash apart from it
T8 | One queue crashes again and again | argued: queues are objects of one process, see T7
T9 | Power fails: all, some or none of the writes are on disk, in any order
    | simulator/test_histories.py::test_the_fixed_seeds_hold
    simulator/test_simulated_file_system.py::test_a_later_write_may_be_there_without_an_earlier_one
T10 | The node is killed while it stops with 40,000 queues (interpreted 5,000)
    | kill/test_many_queues.py::test_killed_while_it_stops kill/many.py::run
T11 | The clock jumps | server.clock:Clock simulator/test_histories.py::test_the_fixed_seeds_hold
T12 | An image of the disk is taken while the node runs
    | kill/test_store_on_disk.py::test_an_image_of_a_running_node
T13 | Two nodes use one directory | kill/test_restart.py::test_one_data_directory_has_one_node
T20 | The last record is torn at every byte | store/test_recovery.py::test_tail_torn_at_every_byte
    store/contents/test_scan.py::test_cut_anywhere
    store/disk/test_index_rebuild.py::test_an_unfinished_append_is_no_damage
T21 | Zeros, noise or old bytes follow the last record
    | store/test_recovery.py::test_junk_behind_the_last_record
    store/test_recovery.py::test_records_of_another_store_or_another_file
T22 | A file consists of zeros, is empty, or has a wrong magic or version
    | store/test_recovery.py::test_less_than_a_header
    store/disk/test_files.py::test_a_strange_file_among_ours_is_put_aside_whole
    kill/test_restart.py::test_strange_files_in_the_journal
T23 | One bit is flipped anywhere
    | store/test_recovery.py::test_every_flipped_bit_costs_one_message_at_most
    store/contents/test_scan.py::test_every_damaged_byte_costs_one_content
    store/records/test_index_scan.py::test_damage_costs_its_own_record_wherever_the_pieces_end
    store/test_damaged_headers.py::test_a_flipped_bit_in_a_header_costs_nothing
T24 | A length is absurd, or a body looks like records | store/test_recovery.py::test_absurd_lengths
    store/test_recovery.py::test_bodies_that_look_like_records
    store/test_recovery.py::test_a_body_made_to_slow_the_search_down
T25 | A damage or a record lies where two pieces of a scan meet
    | store/contents/test_scan.py::test_where_chunks_meet
    store/records/test_index_scan.py::test_damage_costs_its_own_record_wherever_the_pieces_end
T26 | Files are missing
    | store/contents/test_recovery.py::test_when_a_file_is_missing_nothing_is_taken_for_garbage
    store/disk/test_index_rebuild.py::test_what_is_in_the_index_comes_back
    store/disk/test_files.py::test_no_journal_at_all
    kill/test_restart.py::test_lost_definitions_do_not_lose_messages
    kill/test_restart.py::test_a_lost_store_id_is_found_again
    store/index/test_segments.py::test_a_lost_segment_costs_what_was_in_it
T27 | Entries lack their body, bodies lack their entry, records repeat
    | store/test_recovery.py::test_repeated_records_and_acks_of_the_unknown
    store/contents/test_recovery.py::test_a_content_of_the_tail_that_is_not_there
    store/contents/test_recovery.py::test_ids_are_not_given_out_again
T28 | An interrupted merge leaves duplicates
    | store/contents/test_recovery.py::test_the_same_id_twice_in_one_file
    store/contents/test_recovery.py::test_a_crash_during_a_compaction
    store/contents/test_recovery.py::test_a_crash_behind_a_compaction
T29 | Seq ids have gaps or are huge | store/test_recovery.py::test_large_sequence_ids
    store/disk/test_index_rebuild.py::test_a_hole_within_a_segment
T30 | Only the beginning of a checkpoint is valid
    | store/test_documented_format.py::test_a_checkpoint_that_is_cut_or_changed_does_not_count
    kill/test_store_on_disk.py::test_a_truncated_checkpoint
T31 | A file may not be read | kill/test_store_on_disk.py::test_what_may_not_be_read_stops_the_start
    kill/test_store_on_disk.py::test_what_may_not_be_read_later_is_not_thrown_away
    kill/test_store_on_disk.py::test_a_file_system_that_is_read_only
T32 | A segment is damaged in its middle
    | store/disk/test_index_rebuild.py::test_damage_that_nobody_can_mend_costs_its_own_message
    store/records/test_index_scan.py::test_damage_costs_its_own_record_wherever_the_pieces_end
    store/index/test_segments.py::test_a_damaged_segment_costs_one_message_and_still_goes
T33 | Unknown files are preserved
    | store/disk/test_files.py::test_names_that_are_not_ours_are_put_aside
    store/disk/test_index_rebuild.py::test_what_is_not_ours_is_kept
T34 | A second recovery gives the same result, and counts are right
    | store/contents/test_recovery.py::test_references_after_recovery
    store/disk/test_index_rebuild.py::test_a_second_time_it_is_the_same
T40 | Any write finds no space | simulator/test_histories.py::test_the_fixed_seeds_hold
    kill/test_failing_disk.py::test_files_may_not_grow
    kill/test_failing_disk.py::test_started_on_a_disk_that_is_full
T41 | Writes, syncs and reads fail with I/O errors
    | store/disk/test_flusher.py::test_any_call_of_a_batch_fails
    store/disk/test_job_runner.py::test_a_range_that_cannot_be_read_is_lost_but_a_lack_of_descriptors_is_not
    store/disk/test_checkpoint_job.py::test_any_call_of_a_checkpoint_fails
T42 | No descriptors are left | kill/test_store_on_disk.py::test_more_queues_than_descriptors
    hostile/test_strangers.py::test_more_connections_than_descriptors
    store/disk/test_checkpoint_job.py::test_without_a_descriptor_nothing_was_lost
    store/disk/test_job_runner.py::test_a_full_disk_takes_no_more_than_64_descriptors
T43 | Writes are short | store/disk/test_file_system.py::test_thousands_of_parts_and_short_writes
    store/disk/test_flusher.py::test_a_write_that_fails_half_way
T44 | The memory limit is reached, with huge and with idle queues
    | server/test_limits.py::test_a_node_that_fills_up_and_is_emptied_again
    queues/memory/test_monitor.py::test_many_idle_queues_are_asked_in_slices
    queues/memory/test_monitor.py::test_idle_queues_are_not_touched
T45 | Alarms are raised and cleared
    | queues/memory/test_monitor.py::test_the_disk_alarm_stops_paging_at_once_and_its_end_starts_it
    protocol/test_blocked.py::test_of_two_alarms_the_last_to_clear_unblocks
    protocol/test_blocked.py::test_what_a_blocked_connection_settles_is_settled
T46 | The disk is slow | kill/test_store_on_disk.py::test_a_slow_disk_under_a_lazy_queue
    kill/test_slow_disk.py::test_a_slow_disk_confirms_in_batches_and_consumers_do_not_notice
T47 | A consumer stops reading | kill/test_store_on_disk.py::test_memory_while_nothing_is_acked
    protocol/test_back_pressure.py::test_a_consumer_that_does_not_read
    hostile/test_never_reading.py::test_a_consumer_that_never_reads_slows_nobody
T48 | Garbage gathers behind a slow consumer
    | store/contents/test_compaction.py::test_the_garbage_stays_bounded_with_a_slow_consumer
T50 | The invariants hold after every step | queues/test_queue_machine.py::TestQueueMachine
T51 | A segment and a half of messages has a memory target of 0
    | queues/backing/test_paging.py::test_one_segment_and_a_half_without_memory
T52 | permitted_beta_count has the right values
    | queues/backing/test_paging.py::test_permitted_betas
    queues/backing/test_paging.py::test_a_larger_target_permits_no_less
T53 | Requeues arrive in any order and return to any part
    | queues/test_queue_machine.py::TestQueueMachine
    protocol/test_settle.py::test_requeue_in_any_order
T54 | Unacked messages are paged | queues/backing/test_paging.py::test_unacked_messages_are_paged
    queues/test_queue_machine.py::TestQueueMachine
T55 | A queue is purged with and without unacked messages | protocol/test_queues.py::test_purge
    queues/test_queue_machine.py::TestQueueMachine
T56 | Thousands of messages expire, then the node restarts
    | queues/test_expiry_and_restart.py::test_what_has_expired_is_gone_and_the_rest_is_counted
T57 | A queue changes from lazy to default and back | queues/test_queue_machine.py::TestQueueMachine
T58 | The embed threshold is exact and may change
    | store/contents/test_store.py::test_sizes_around_the_limits
    store/index/test_segments.py::test_the_embed_threshold_may_change_between_starts
T59 | Sizes lie around every limit | store/contents/test_store.py::test_sizes_around_the_limits
    store/contents/test_store.py::test_128_mib_are_read_and_copied_in_pieces
    protocol/test_content.py::test_bodies_around_every_boundary
T60 | One message fans out to many queues, and its writes and removals race
    | store/contents/test_store.py::test_a_fan_out_is_stored_once_and_removed_last
    store/contents/test_store.py::test_write_and_remove_races
T61 | Transient messages are paged, then the node restarts
    | store/index/test_segments.py::test_transient_messages_are_paged_and_do_not_outlive_the_node
T62 | Each publish is confirmed once
    | protocol/test_confirms.py::test_a_mixture_is_confirmed_once_each
    protocol/test_confirms.py::test_a_publish_whose_queue_is_deleted_is_confirmed
    store/contents/test_store.py::test_write_and_remove_races
T63 | A message is delivered directly, and the consumer dies
    | protocol/test_confirms.py::test_delivery_to_a_no_ack_consumer_is_confirmed
    protocol/test_settle.py::test_unacked_return_when_their_channel_ends
T64 | A file whose contents are all acked is deleted, the current one stays
    | store/contents/test_store.py::test_a_file_goes_with_its_last_content_and_the_current_one_stays
    store/disk/test_checkpoint_job.py::test_a_queue_directory_goes_with_its_last_segment
    store/index/test_segments.py::test_a_segment_goes_when_all_of_it_is_settled
T65 | A store has a hundred content files | store/contents/test_store.py::test_a_hundred_files
T66 | Readers use a file while it is merged and deleted
    | store/contents/test_compaction.py::test_readers_do_not_wait_for_compaction
T67 | A compactor is stuck | store/disk/test_workers.py::test_stop_does_not_wait_for_what_is_stuck
    store/disk/test_workers.py::test_a_compaction_that_rests_is_ended_by_a_stop
T68 | A long run has many kills | kill/test_mixed_load.py::test_killed_under_mixed_load
T70 | The time of a start does not grow with the backlog | bench.backlog:measure
    bench.workloads:run_restart
    store/index/test_segments.py::test_a_start_reads_the_checkpoint_and_the_journal_behind_it
T71 | 40,000 queues (interpreted 5,000): no descriptor for each, and restarts lose no memory;
    times are printed
    | kill/test_many_queues.py::test_starts_and_stops kill/many.py::run
T72 | A start reads no bodies
    | kill/test_store_on_disk.py::test_a_start_reads_no_bodies_and_takes_no_memory_for_them
    store/index/test_segments.py::test_a_start_reads_the_checkpoint_and_the_journal_behind_it
T73 | A lazy queue starts without taking memory
    | kill/test_store_on_disk.py::test_a_start_reads_no_bodies_and_takes_no_memory_for_them
    broker.vhost.vhost:Vhost._restore_backing bench.backlog:measure
    store/index/test_segments.py::test_a_start_reads_the_checkpoint_and_the_journal_behind_it
T74 | A backup taken under load is restored
    | kill/test_backup.py::test_what_was_confirmed_before_a_backup_is_in_it
    kill/test_backup.py::test_a_node_killed_during_a_backup
T75 | A backup is restored without definitions
    | kill/test_backup.py::test_missing_definitions_are_no_reason_to_lose_data
T76 | RabbitMQ's directories are read
    | tables/rabbitmq/test_real_directories.py::test_every_message_is_there_in_order
T77 | The format has several versions | store.disk.format_version:refuse_newer_formats
    golden/test_versions.py::test_an_old_directory_turns_over
    golden/test_versions.py::test_a_later_format_is_refused_and_nothing_is_changed
T78 | A start logs what it found | server.startup.vhost:_log_report
    kill/test_restart.py::test_damage_costs_what_is_damaged
    broker/vhost/test_loss_log.py::test_what_a_start_finds_is_one_line_for_a_queue
"""
