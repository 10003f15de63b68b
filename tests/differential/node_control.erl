%% Runs inside a RabbitMQ node: tells a test when the node is at rest, sets policies, deletes all.
%%
%% A test connects over TCP and sends requests, each an Erlang binary term behind a length of
%% four bytes; the answer to each has the same form.
-module(node_control).
-export([start/1]).

-define(VHOST, <<"/">>).
-define(USER, <<"differential">>).
%% Seconds after which the node counts as never at rest.
-define(PATIENCE_S, 20).

%% Listen on a free port of the loopback; the port goes into the file.
start(File) ->
    Self = self(),
    spawn(fun() ->
        {ok, Listener} = gen_tcp:listen(0, [
            binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}, {nodelay, true},
            {reuseaddr, true}
        ]),
        {ok, Port} = inet:port(Listener),
        ok = file:write_file(File, integer_to_binary(Port)),
        Self ! listening,
        {ok, Socket} = gen_tcp:accept(Listener),
        serve(Socket)
    end),
    receive listening -> ok end.

serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Request} ->
            Answer =
                try answer(rabbit_json:decode(Request))
                catch Class:Reason:Trace ->
                    #{error => iolist_to_binary(io_lib:format("~p", [{Class, Reason, Trace}]))}
                end,
            ok = gen_tcp:send(Socket, rabbit_json:encode(Answer)),
            serve(Socket);
        {error, closed} ->
            ok
    end.

answer([<<"rest">>]) ->
    rest(erlang:monotonic_time(second) + ?PATIENCE_S, 0);
answer([<<"policy">>, Component, Name, Value]) ->
    #{<<"definition">> := Definition} = Value,
    Pairs = maps:to_list(Value#{<<"definition">> := maps:to_list(Definition)}),
    case rabbit_runtime_parameters:set_any(?VHOST, Component, Name, Pairs, ?USER) of
        ok -> #{ok => true};
        {error_string, Text} -> #{refused => iolist_to_binary(Text)}
    end;
answer([<<"clear">>, Component, Name]) ->
    _ = rabbit_runtime_parameters:clear_any(?VHOST, Component, Name, ?USER),
    #{ok => true};
answer([<<"sweep">>]) ->
    [rabbit_policy:delete(?VHOST, proplists:get_value(name, P), ?USER)
        || P <- rabbit_policy:list(?VHOST)],
    [rabbit_policy:delete_op(?VHOST, proplists:get_value(name, P), ?USER)
        || P <- rabbit_policy:list_op(?VHOST)],
    [rabbit_amqqueue:delete(Q, false, false, ?USER) || Q <- rabbit_amqqueue:list(?VHOST)],
    [rabbit_exchange:delete(Name, false, ?USER)
        || X <- rabbit_exchange:list(?VHOST),
           Name <- [element(2, X)],
           not is_predeclared(element(4, Name))],
    %% The deletions leave the bindings between predeclared exchanges.
    [rabbit_binding:remove(B, ?USER) || B <- rabbit_binding:list(?VHOST)],
    #{ok => true}.

is_predeclared(<<>>) -> true;
is_predeclared(<<"amq.", _/binary>>) -> true;
is_predeclared(_) -> false.

%% At rest: this process, on the one scheduler, is the only active task, so no other process has a
%% message to handle. A task that a dirty scheduler has just done may be missed once: it is counted
%% on the scheduler's queue from then on.
rest(Deadline, PauseMs) ->
    erlang:yield(),
    case is_alone() andalso is_alone() of
        true ->
            #{ok => true};
        false ->
            case erlang:monotonic_time(second) > Deadline of
                true ->
                    #{busy => iolist_to_binary(io_lib:format("~p", [busy()]))};
                false ->
                    receive after PauseMs -> ok end,
                    rest(Deadline, 1 - PauseMs)
            end
    end.

is_alone() ->
    lists:sum(statistics(active_tasks_all)) =:= 1.

busy() ->
    [{Process, Found}
        || Process <- processes(), Process =/= self(),
           Found <- [process_info(Process, [status, message_queue_len, current_function])],
           is_list(Found), lists:nth(1, Found) =/= {status, waiting}].
