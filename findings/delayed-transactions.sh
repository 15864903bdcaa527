#!/usr/bin/env bash
# A transactional message with a delay level is acknowledged, committed and never delivered.
#
# Versions: Apache RocketMQ broker 4.9.7 and 5.5.0 (Maven Central), client for Go v2.1.2 (Go proxy).
#
# Input: SendMessageInTransaction with a message that has WithDelayTimeLevel(2), 5 seconds, and one
# without a level. Both local transactions return CommitMessageState.
# Output: both sends return SEND_OK; a consumer receives only the message without a level, also 20
# seconds later.
#
# The broker treats the prepared message, which it stores without its transaction flag, as an
# ordinary delayed one, and drops it when the delay is over, because its topic is then
# RMQ_SYS_TRANS_HALF_TOPIC. Java's client removes the level of a transactional message
# (DefaultMQProducerImpl.sendMessageInTransaction); the Go client keeps it.
#
# Needs: bash, Java 11 or later, Maven, Go. Ends with 0 if the behavior is as stated.
set -euo pipefail

folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_for() { # a text in a file
    for _ in $(seq 120); do
        grep -q "$1" "$2" 2>/dev/null && return
        sleep 0.5
    done
    echo "no '$1' in $2" >&2
    exit 2
}

mkdir go && cd go
cat > go.mod <<'GO'
module example.com/delayed

go 1.20

require github.com/apache/rocketmq-client-go/v2 v2.1.2
GO
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type commits struct{}

func (commits) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func (commits) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func check(err error) {
	if err != nil {
		fmt.Println("ERROR", err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	servers := []string{os.Args[1]}
	p, err := rocketmq.NewTransactionProducer(commits{},
		producer.WithNameServer(servers), producer.WithGroupName("delayed_producer"))
	check(err)
	check(p.Start())
	for _, body := range []string{"plain", "delayed"} {
		message := primitive.NewMessage("Delayed", []byte(body))
		if body == "delayed" {
			message.WithDelayTimeLevel(2)
		}
		result, err := p.SendMessageInTransaction(context.Background(), message)
		check(err)
		fmt.Println("SENT", body, result.Status == primitive.SendOK)
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(servers),
		consumer.WithGroupName("delayed_consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe("Delayed", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println("GOT", string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(c.Start())
	time.Sleep(25 * time.Second)
	fmt.Println("END")
	os.Exit(0)
}
GO
GOFLAGS=-mod=mod go build -o ../probe . 2> ../build.log || { cat ../build.log >&2; exit 2; }
cd ..

failed=0
for release in 4.9.7 5.5.0; do
    mkdir "$release" && cd "$release"
    cat > pom.xml <<POM
<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>$release</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>$release</version></dependency>
</dependencies></project>
POM
    mvn -q dependency:copy-dependencies -DoutputDirectory=jars > mvn.log 2>&1 || { cat mvn.log >&2; exit 2; }
    mkdir -p conf store
    for name in logback_namesrv logback_broker rmq.namesrv.logback rmq.broker.logback rmq.logback; do
        echo '<configuration/>' > "conf/$name.xml"
    done
    server=$(port)
    broker=$(port)
    echo "listenPort=$server" > namesrv.conf
    printf '%s\n' brokerName=b brokerIP1=127.0.0.1 "listenPort=$broker" "storePathRootDir=$PWD/store" \
        "storePathCommitLog=$PWD/store/commitlog" mappedFileSizeCommitLog=67108864 \
        autoCreateTopicEnable=true waitTimeMillsInSendQueue=10000 diskMaxUsedSpaceRatio=95 > broker.conf
    java=(java -Xmx512m "-Duser.home=$PWD" "-Drocketmq.home.dir=$PWD" -Dtls.server.mode=disabled
        --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
        --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED
        -cp "$PWD/conf:$PWD/jars/*")
    export ROCKETMQ_HOME=$PWD
    "${java[@]}" org.apache.rocketmq.namesrv.NamesrvStartup -c namesrv.conf > namesrv.log 2>&1 &
    wait_for "boot success" namesrv.log
    "${java[@]}" org.apache.rocketmq.broker.BrokerStartup -c broker.conf -n "127.0.0.1:$server" > broker.log 2>&1 &
    wait_for "boot success" broker.log
    sleep 12 # the broker registers with its name server
    ../probe "127.0.0.1:$server" > probe.log 2>&1 || { cat probe.log >&2; exit 2; }
    echo "== $release"
    grep -E '^(SENT|GOT|END)' probe.log
    grep -q '^SENT plain true' probe.log && grep -q '^SENT delayed true' probe.log || failed=1
    grep -q '^GOT plain' probe.log || failed=1
    if grep -q '^GOT delayed' probe.log; then failed=1; fi
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    cd ..
done
[ "$failed" = 0 ] && echo "as stated: the delayed transactional message was never delivered"
exit "$failed"
