-- K690: a batch was refused as illegal
-- promise: none
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'send')
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'send'
-- nothing: nothing was sent
-- holds: No batch was refused as an illegal message.
-- rule: A send of several messages that a broker refused with the code for an illegal message (13).
-- source: RocketMQ issue 690
select op, process, t_invoke, topic, queue, coalesce(size(messages), 0) as messages, error
from ops
where f = 'send' and type = 'fail' and coalesce(size(messages), 0) > 1
  and startswith(error, 'IllegalMessageError')
