package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	franzscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"
)

// security is how to log in, from the environment variable PEER_SECURITY. Mechanism empty: by a certificate.
type security struct {
	Mechanism, User, Password, Token, CA, Certificate string
}

func readSecurity() security {
	var given security
	must(json.Unmarshal([]byte(os.Getenv("PEER_SECURITY")), &given), "PEER_SECURITY")
	return given
}

func (given security) tls() *tls.Config {
	pem, err := os.ReadFile(given.CA)
	must(err, "authority")
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		fail("no certificate in %s", given.CA)
	}
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
		must(err, "certificate")
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// wrong is the same with a password, or a token, that is not the user's.
func (given security) wrong() security {
	given.Password, given.Token = given.Password+"x", strings.ToUpper(given.Token)
	return given
}

func (given security) franzGo() []kgo.Opt {
	options := []kgo.Opt{kgo.DialTLSConfig(given.tls()), kgo.RequestRetries(0)}
	var mechanism sasl.Mechanism
	switch given.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = franzscram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = franzscram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: given.Token}.AsMechanism()
	default:
		return options
	}
	return append(options, kgo.SASL(mechanism))
}

func franzGoSecurity(ctx context.Context, address string) {
	given := readSecurity()
	topic := "go-secured"
	options := append(given.franzGo(), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	both := client(address, options...)
	must(both.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("secret")}).FirstErr(), "produce")
	if value := string(read(ctx, both, 1)[0].Value); value != "secret" {
		fail("read %s", value)
	}
	both.Close()
	if given.Mechanism == "" {
		given.Certificate = ""
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	refused := client(address, given.wrong().franzGo()...)
	defer refused.Close()
	err := refused.Ping(short)
	// Of a wrong token franz-go says that there is data in the answer to it.
	if err == nil || given.Mechanism != "" && !errors.Is(err, kerr.SaslAuthenticationFailed) &&
		!strings.Contains(err.Error(), "oauth response") {
		fail("a wrong login is answered %v", err)
	}
}

// exchange is a login by SCRAM as sarama wants it.
type exchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (one *exchange) Begin(user, password, authorization string) error {
	made, err := one.hash.NewClient(user, password, authorization)
	if err == nil {
		one.conversation = made.NewConversation()
	}
	return err
}

func (one *exchange) Step(challenge string) (string, error) { return one.conversation.Step(challenge) }
func (one *exchange) Done() bool                            { return one.conversation.Done() }

type fixedToken string

func (token fixedToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(token)}, nil
}

func (given security) sarama() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Max = 0
	config.Net.TLS.Enable, config.Net.TLS.Config = true, given.tls()
	if given.Mechanism == "" {
		return config
	}
	login := &config.Net.SASL
	login.Enable, login.Handshake, login.Version = true, true, sarama.SASLHandshakeV1
	login.Mechanism, login.User, login.Password = sarama.SASLMechanism(given.Mechanism), given.User, given.Password
	login.TokenProvider = fixedToken(given.Token)
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if given.Mechanism == "SCRAM-SHA-256" {
			return &exchange{hash: sha256.New}
		}
		return &exchange{hash: sha512.New}
	}
	return config
}

func saramaSecurity(_ context.Context, address string) {
	given := readSecurity()
	topic, servers, config := "sarama-secured", []string{address}, given.sarama()
	producer, err := sarama.NewSyncProducer(servers, config)
	must(err, "producer")
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("secret")})
	must(err, "produce")
	must(producer.Close(), "close producer")
	consumer, err := sarama.NewConsumer(servers, config)
	must(err, "consumer")
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err, "consume")
	if message := <-partition.Messages(); string(message.Value) != "secret" {
		fail("read %s", message.Value)
	}
	must(consumer.Close(), "close consumer")
	if given.Mechanism == "" {
		given.Certificate = ""
	}
	refused, err := sarama.NewClient(servers, given.wrong().sarama())
	if err == nil {
		refused.Close()
		fail("a wrong login is let in")
	}
	if given.Mechanism != "" && !strings.Contains(strings.ToLower(err.Error()), "auth") {
		fail("a wrong login is answered %v", err)
	}
}
